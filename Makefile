# Everything on a fresh machine: `make demo` and `make test` need Python 3.10-3.13 and nothing else.
PYTHON ?= python3
VENV ?= .venv
# Files of tests that run at the same time, each in a process of its own, of 1 to 2 GB: on two cores three, since some
# wait for programs that they started.
JOBS ?= 3
# The versions that are installed, and extras beside dev: tf-models-official needs TensorFlow 2.20.
CONSTRAINTS ?= constraints.txt
EXTRAS ?= --extra tf-models
RUN := $(VENV)/bin/python
export TF_CPP_MIN_LOG_LEVEL ?= 3
# Where it is set, every process compiles all that it imports: 12 s of a core for TensorFlow.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint docs newest clean-demo constraints

demo: $(VENV)/installed
	$(RUN) -m demo.run_demo

test: $(VENV)/installed
	$(RUN) -m tests.support.run --jobs $(JOBS)

lint: $(VENV)/installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# The documentation, in build/site/index.html.
docs: $(VENV)/installed
	VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/uv pip install --quiet -r pyproject.toml --extra docs -c $(CONSTRAINTS)
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet

# The tests with the newest versions that pyproject.toml allows, in an environment of their own, without
# tf-models-official, which would hold TensorFlow at 2.20, and with Apache Beam, which constraints.txt's protobuf and
# pyarrow leave no room for.
newest:
	$(MAKE) test VENV=$(VENV)-newest CONSTRAINTS=/dev/null EXTRAS="--extra beam"

clean-demo:
	rm -rf demo_data

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "error: Python 3.10-3.13 is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1); try make PYTHON=python3.11"; exit 1; }
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV) || \
	  { echo "error: $(PYTHON) -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@# uv resolves and unpacks the 140 packages in a fraction of pip's time.
	$(RUN) -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/uv pip install --quiet -r pyproject.toml --extra dev $(EXTRAS) -c $(CONSTRAINTS)
	@# The commands: .venv/bin/electra and its parts, which run what is in this folder.
	VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/uv pip install --quiet --no-deps --editable .
	touch $@

# The versions that `make` installs, anew; the newest ones that pyproject.toml allows.
constraints: $(VENV)/installed
	VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/uv pip compile --quiet --upgrade pyproject.toml --extra dev $(EXTRAS) --extra docs --universal \
	  --python-version 3.10 --no-annotate --no-header --output-file constraints.txt
