"""Changes a formula in one place at a time, and tells which changes its test does not notice. Run by hand:

    python -m tests.support.mutations [PART_OF_A_FILE_OR_TITLE]

The change is made in a copy of the tree. The exit code is 1 if a change survives, or if its line is not there any more.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "data", "demo_data", "dist")

# File of electra_tf2/ -> (what goes wrong, text that occurs once, what takes its place, the test that must fail).
MUTATIONS = {
    "pretrain/objectives/electra.py": [
        ("correctly sampled tokens are called fake", "return forward.replaced.is_replaced",
         "return forward.replaced.was_sampled", "model/test_golden_model.py::test_checkpoint_forward"),
        ("padding counts", "return tf.cast(masked.input_mask, tf.float32)",
         "return tf.ones_like(masked.input_mask, tf.float32)", "model/test_golden_model.py::test_checkpoint_forward"),
        ("ELECTRA 15 % learns from all tokens",
         "if self.config.disc_tokens == \"masked\":",
         "if self.config.disc_tokens == \"drawn\":",
         "pretrain/test_ablations.py::test_which_tokens_a_loss_learns_from"),
    ],
    "pretrain/objectives/electric.py": [
        ("the share of noise is turned over", "+ math.log(noise_share / (1 - noise_share))",
         "- math.log(noise_share / (1 - noise_share))", "model/test_golden_model.py::test_variant[electric]"),
        ("noise that is the original token is called data", "return forward.replaced.was_sampled",
         "return forward.replaced.is_replaced", "model/test_golden_model.py::test_variant[electric]"),
        ("the energies train the noise",
         "return tf.stop_gradient(forward.generator.cloze.log_probs(forward.replaced.input_ids))",
         "return forward.generator.cloze.log_probs(forward.replaced.input_ids)",
         "model/test_golden_model.py::test_variant[electric]"),
    ],
    "pretrain/objectives/ablations.py": [
        ("the baseline trains the generator",
         "self.baseline(tf.stop_gradient(generator.states))",
         "self.baseline(generator.states)",
         "pretrain/test_ablations.py::test_the_baseline_learns_from_its_own_loss_and_trains_nothing_else"),
        ("the policy trains the baseline",
         "return -tf.stop_gradient(reward - baseline) * log_probs",
         "return -(reward - baseline) * log_probs",
         "pretrain/test_ablations.py::test_the_baseline_learns_from_its_own_loss_and_trains_nothing_else"),
        ("the baseline has the wrong sign",
         "policy_losses(log_probs, reward, tf.nn.softplus(-guess))",
         "policy_losses(log_probs, reward, -tf.nn.softplus(-guess))",
         "pretrain/test_ablations.py::test_the_generators_loss_is_the_papers"),
        ("what is copied is not predicted, too",
         "tf.where(copied, tf.reduce_logsumexp(tf.stack([copy, predicted], -1), -1), predicted)",
         "tf.where(copied, copy, predicted)",
         "pretrain/test_coco_lm.py::test_the_mixture_equals_its_definition_in_float64_and_is_finite"),
    ],
    "pretrain/objectives/coco_lm.py": [
        ("the language model trains the copy head", "copy_logits = tf.stop_gradient(copy_logits)",
         "copy_logits = tf.identity(copy_logits)", "pretrain/test_coco_lm.py::test_gradients_of_the_forms_of_the_loss"),
        ("what is copied weighs most",
         "return tf.sigmoid(-copy_logits) * cross_entropy",
         "return tf.sigmoid(copy_logits) * cross_entropy",
         "pretrain/test_coco_lm.py::test_gradients_of_the_forms_of_the_loss"),
        ("the contrast multiplies by its temperature",
         "tf.matmul(views, views, transpose_b=True) / temperature",
         "tf.matmul(views, views, transpose_b=True) * temperature",
         "pretrain/test_coco_lm.py::test_contrast_equals_brute_force_and_knows_no_order"),
        ("a sequence is its own negative",
         "tf.fill([2 * rows], similarity.dtype.min / 2)",
         "tf.fill([2 * rows], 1.0 / temperature)",
         "pretrain/test_coco_lm.py::test_contrast_equals_brute_force_and_knows_no_order"),
        ("one direction only", "return 0.5 * (losses[:rows] + losses[rows:])",
         "return losses[:rows]", "pretrain/test_coco_lm.py::test_contrast_equals_brute_force_and_knows_no_order"),
    ],
    "pretrain/objectives/contrast.py": [
        ("padding is a negative", "return tf.where(real, similarity, similarity.dtype.min / 2)",
         "return similarity", "pretrain/test_coco_lm.py::test_rows_that_fill_up_an_evaluation_batch_are_no_negatives"),
        ("every micro-batch counts the whole loss",
         "return loss - tf.stop_gradient(loss) * (1.0 - whole.share)",
         "return loss",
         "pretrain/test_micro_batches.py::test_micro_batches_change_neither_loss_nor_gradient_nor_metrics[2-none]"),
    ],
    "pretrain/masking.py": [
        ("the number of predictions is rounded down",
         "tf.cast(tf.round(length * mask_prob), tf.int32)",
         "tf.cast(tf.floor(length * mask_prob), tf.int32)",
         "pretrain/test_golden_masking.py::test_number_of_predictions"),
        ("special tokens are masked", "scores = tf.where(candidates > 0, noise, -1.0)",
         "scores = noise", "pretrain/test_masking.py::test_only_candidates_are_masked_and_unmasking_restores_them"),
        ("no token is kept", "changed = hidden | (choice >= mask_rate + keep_rate)",
         "changed = hidden | (choice >= mask_rate)", "pretrain/test_masking.py::test_mask_rates_are_respected"),
        ("samples that are right are called replaced", "is_replaced=was_sampled * differs",
         "is_replaced=was_sampled", "pretrain/test_masking.py::test_corruption_labels"),
        ("only the right token is disallowed, turned over",
         "return tf.where(correct, logits - DISALLOWED, logits)",
         "return tf.where(correct, logits, logits - DISALLOWED)",
         "pretrain/test_golden_masking.py::test_samples_are_distributed_as_the_original_s[9-1.0]"),
        ("all replicas mask alike",
         "return tf.slice(noise, [row_offset, *[0] * len(shape)], [rows, *shape])",
         "return tf.slice(noise, [0, *[0] * len(shape)], [rows, *shape])",
         "pretrain/test_masking.py::test_masking_is_a_function_of_the_global_row"),
    ],
    "pretrain/masking_units.py": [
        ("a unit that just fits is passed over",
         "(tf.cumsum(tf.where(fits, sizes, 0), axis=-1) <= left)",
         "(tf.cumsum(tf.where(fits, sizes, 0), axis=-1) < left)",
         "pretrain/test_masking_units.py::test_units_are_drawn_as_by_plain_loops"),
    ],
    "pretrain/schedules.py": [
        ("values move before the ramp starts",
         "done = tf.cast(step - config.ramp_start, tf.float32)",
         "done = tf.cast(step, tf.float32)",
         "pretrain/test_schedules.py::test_values_hold_then_move_linearly_then_stay"),
    ],
    "papers/mpa/model.py": [
        ("the drawn position itself counts as harm", "found * other * tf.cast(",
         "found * tf.cast(", "papers/test_mpa.py::test_the_penalty_equals_plain_loops"),
        ("correct predictions are penalised",
         "misled_by = self.cooccurrence(forward, predicted) * wrong[..., tf.newaxis]",
         "misled_by = self.cooccurrence(forward, predicted)",
         "papers/test_mpa.py::test_the_penalty_equals_plain_loops"),
        ("the target is no constant", "target = tf.stop_gradient(target) if self.config.mpa_stop_gradient else target",
         "target = tf.identity(target)", "papers/test_mpa.py::test_the_gradient_of_the_scores_is_the_derived_one"),
        ("heads are added up", "return self.output(forward, losses / heads, metrics)",
         "return self.output(forward, losses, metrics)", "papers/test_mpa.py::test_the_penalty_equals_plain_loops"),
    ],
    "papers/on_losses/segments.py": [
        ("QuickThoughts' similarity is transposed",
         "similarity = without_padding(tf.matmul(first, second, transpose_b=True), real)",
         "similarity = without_padding(tf.matmul(second, first, transpose_b=True), real)",
         "papers/test_on_losses.py::test_halves_are_those_of_plain_slices_and_their_loss_is_that_of_a_loop"),
        ("FastSent's difference is not squared", "tf.square(1.0 - cosines)",
         "1.0 - cosines", "papers/test_on_losses_segments.py::test_fast_sent_is_the_loss_of_a_loop"),
    ],
    "papers/on_losses/tasks.py": [
        ("new tasks get no more steps than old ones", "np.diag(np.arange(tasks) + 1.0)",
         "np.diag(np.ones(tasks))", "papers/test_on_losses.py::test_every_task_gets_its_share_in_stages"),
    ],
    "papers/amos/model.py": [
        ("the offsets train the word table",
         "tf.tensordot(chosen, tf.stop_gradient(words), 1)",
         "tf.tensordot(chosen, words, 1)",
         "papers/test_amos.py::test_the_offsets_do_not_train_the_words_that_they_are_made_of"),
        ("the gradient's factor is left out", "pull = config.mixture_gradient * tf.matmul(",
         "pull = tf.matmul(", "papers/test_amos.py::test_samples_and_the_shares_gradient_are_those_of_plain_loops"),
    ],
    "papers/mc_bert/model.py": [
        ("the original is not offered",
         "tf.where(replaced, masked.input_ids[..., tf.newaxis], drawn[..., :1])",
         "drawn[..., :1]",
         "papers/test_mc_bert.py::test_the_original_is_offered_where_it_was_replaced_and_the_loss_is_that_of_plain_loops"),
    ],
    "papers/distilbert/model.py": [
        ("the divergence is the other way round", "tf.exp(theirs) * (theirs - ours)",
         "tf.exp(ours) * (ours - theirs)", "papers/test_distilbert.py::test_divergences_equal_their_definition"),
    ],
    "training/optimization.py": [
        ("small gradients are blown up to the clip norm",
         "factor = clip_norm / tf.maximum(norm, clip_norm)",
         "factor = clip_norm / norm",
         "training/test_optimization.py::test_bias_correction_is_the_published_adams"),
        ("the decay starts before the warm-up ends", "start = float(self.num_warmup_steps) if self.separate else 0.0",
         "start = 0.0", "training/test_optimization.py::test_the_schedule_at_its_corners"),
        ("the warm-up is a step early",
         "rate *= tf.minimum(1.0, step / self.num_warmup_steps)",
         "rate *= tf.minimum(1.0, (step + 1.0) / self.num_warmup_steps)",
         "training/test_optimization.py::test_the_schedule_at_its_corners"),
        ("an overflow is applied",
         "keep = tf.math.is_finite(norm)",
         "keep = tf.constant(True)",
         "training/test_optimization.py::test_an_overflow_changes_the_scale_and_the_step_only"),
        ("replicas clip before they add up",
         "norm = tf.linalg.global_norm(gradients) if self._norm_of_slices else global_norm(dense)",
         "norm = tf.linalg.global_norm(gradients)",
         "training/test_optimization.py::test_replicas_sum_their_gradients_before_clipping"),
    ],
    "training/muon.py": [
        ("the momentum is not Nesterov's", "ahead = self.momentum * momenta[index] + (1.0 - self.momentum) * gradient",
         "ahead = momenta[index]", "training/test_muon.py::test_ten_steps_equal_the_reference"),
    ],
    "training/task.py": [
        ("all replicas drop out alike", "return tf.random.experimental.stateless_fold_in(seed, self.replica())",
         "return seed", "training/test_seeds.py::test_no_two_draws_of_dropout_have_the_same_seed"),
        ("all steps drop out alike",
         "tf.constant([self._run_seed, purpose]), tf.cast(step, tf.int32))",
         "tf.constant([self._run_seed, purpose]), 0)",
         "training/test_seeds.py::test_no_two_draws_of_dropout_have_the_same_seed"),
    ],
    "formats/checkpoint_files.py": [
        ("checksums are not compared",
         "if sha256_of(folder / name) != expected]",
         "if not sha256_of(folder / name)]",
         "training/test_checkpoints.py::test_a_damaged_checkpoint_is_passed_over_aloud"),
        ("a checkpoint gets its name before it is on the disk",
         "_sync(folder / _STAGING / name)",
         "(folder / _STAGING / name)",
         "training/test_checkpoints.py::test_files_and_folder_are_on_the_disk_before_a_checkpoint_gets_its_name"),
    ],
    "finetune/tasks/qa_answers.py": [
        ("repeated words count once", "sum((collections.Counter(gold_words) & collections.Counter(words)).values())",
         "len(set(gold_words) & set(words))", "finetune/test_qa.py::test_words_count_as_often_as_they_are_in_both"),
        ("answers are a piece longer than allowed",
         "end - start < config.max_answer_length",
         "end - start <= config.max_answer_length",
         "finetune/test_golden_qa.py::test_answers_and_scores_are_the_originals"),
    ],
}  # fmt: skip


def outcome(tree: Path, file: str, old: str, new: str, test: str) -> str:
    """Makes the change, runs the test, and takes the change back."""
    path = tree / "electra_tf2" / file
    before = path.read_text() if path.exists() else ""
    if before.count(old) != 1:
        return "GONE"
    path.write_text(before.replace(old, new))
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", f"tests/{test}"]
    finished = subprocess.run(
        command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True, text=True, timeout=600
    )
    path.write_text(before)
    return {0: "SURVIVED", 1: "noticed"}.get(finished.returncode, f"BROKEN\n{finished.stdout[-1500:]}")


def main() -> int:
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [(file, *one) for file, all_of_file in MUTATIONS.items() for one in all_of_file]
    chosen = [one for one in chosen if part in one[0] or part in one[1]]
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(shutil.copytree(ROOT, Path(folder) / "tree", symlinks=True, ignore=LEFT_OUT))
        for file, title, old, new, test in chosen:
            begun = time.monotonic()
            result = outcome(tree, file, old, new, test)
            unnoticed += result != "noticed"
            print(f"{result:8} {file}: {title} ({time.monotonic() - begun:.0f} s)", flush=True)
    print(f"{len(chosen)} changes, {unnoticed} unnoticed")
    return int(unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main())
