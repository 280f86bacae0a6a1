"""A step of ELECTRA written plainly in JAX, as an XLA program: what benchmarks/compiled.py compiles beside ours.

  python benchmarks/compiled_peer.py SIZES.json cuda|tpu PROGRAM

Runs with jax alone. SIZES.json holds what `Sizes` lists; PROGRAM is the file for a serialised HloModuleProto. The step
is the one of our recipes: 15 % of the tokens masked at random, the generator's loss, its samples, the discriminator's
loss, dropout, gradients clipped by their global norm, AdamW with a linear schedule; products and states in bfloat16 if
asked for, weights in float32. Attention is two einsums and a softmax, the vocabulary's loss a log-softmax: as one would
write it first.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp


class Sizes(NamedTuple):
    """Sizes of both networks; generator_* where they differ. The discriminator's input is wide as `embedding`."""

    batch: int
    length: int
    masked: int
    vocabulary: int
    embedding: int
    layers: int
    hidden: int
    heads: int
    inner: int
    generator_hidden: int
    generator_heads: int
    generator_inner: int
    precision: str


Weights = dict[str, Any]
DROPOUT = 0.1


def shapes_of(s: Sizes) -> Weights:
    """Name -> shape of every weight."""

    def encoder(hidden: int, inner: int) -> Weights:
        layer = {
            "qkv": (hidden, 3 * hidden),
            "qkv_bias": (3 * hidden,),
            "out": (hidden, hidden),
            "out_bias": (hidden,),
            "norm1": (2, hidden),
            "ffn": (hidden, inner),
            "ffn_bias": (inner,),
            "ffn_out": (inner, hidden),
            "ffn_out_bias": (hidden,),
            "norm2": (2, hidden),
        }
        return {"project": (s.embedding, hidden), "layers": [layer] * s.layers}

    return {
        "words": (s.vocabulary, s.embedding),
        "positions": (s.length, s.embedding),
        "segments": (2, s.embedding),
        "norm": (2, s.embedding),
        "generator": encoder(s.generator_hidden, s.generator_inner),
        "main": encoder(s.hidden, s.inner),
        "mlm": (s.generator_hidden, s.embedding),
        "mlm_norm": (2, s.embedding),
        "mlm_bias": (s.vocabulary,),
        "detect": (s.hidden, s.hidden),
        "detect_out": (s.hidden, 1),
    }


def norm(x: jax.Array, scale_and_shift: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-12)
    return (scaled * scale_and_shift[0] + scale_and_shift[1]).astype(x.dtype)


def dropout(x: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.where(jax.random.bernoulli(key, 1 - DROPOUT, x.shape), x / (1 - DROPOUT), 0).astype(x.dtype)


def encode(w: Weights, x: jax.Array, mask: jax.Array, heads: int, key: jax.Array) -> jax.Array:
    """[B, L, embedding] -> states [B, L, hidden]."""
    kind = x.dtype
    x = x @ w["project"].astype(kind)
    batch, length, hidden = x.shape
    forbidden = (1.0 - mask.astype(jnp.float32))[:, None, None, :] * -1e4
    for layer in w["layers"]:
        key, *keys = jax.random.split(key, 4)
        qkv = x @ layer["qkv"].astype(kind) + layer["qkv_bias"].astype(kind)
        q, k, v = jnp.split(qkv.reshape(batch, length, heads, 3 * hidden // heads), 3, -1)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (hidden // heads) ** 0.5
        shares = jax.nn.softmax(scores.astype(jnp.float32) + forbidden, -1).astype(kind)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", dropout(shares, keys[0]), v).reshape(batch, length, hidden)
        y = mixed @ layer["out"].astype(kind) + layer["out_bias"].astype(kind)
        x = norm(x + dropout(y, keys[1]), layer["norm1"])
        y = jax.nn.gelu(x @ layer["ffn"].astype(kind) + layer["ffn_bias"].astype(kind), approximate=False)
        y = y @ layer["ffn_out"].astype(kind) + layer["ffn_out_bias"].astype(kind)
        x = norm(x + dropout(y, keys[2]), layer["norm2"])
    return x


def loss_of(w: Weights, ids: jax.Array, mask: jax.Array, segments: jax.Array, key: jax.Array, s: Sizes) -> jax.Array:
    kind = jnp.dtype(s.precision)
    draw, sample, *keys = jax.random.split(key, 6)
    order = jnp.where(mask > 0, jax.random.uniform(draw, ids.shape), -1.0)
    places = jax.lax.top_k(order, s.masked)[1]  # [B, masked]
    rows = jnp.arange(s.batch)[:, None]
    targets = ids[rows, places]
    masked = ids.at[rows, places].set(4)

    def embed(tokens: jax.Array, key: jax.Array) -> jax.Array:
        x = w["words"][tokens] + w["positions"][None] + w["segments"][segments]
        return dropout(norm(x, w["norm"]), key).astype(kind)

    states = encode(w["generator"], embed(masked, keys[0]), mask, s.generator_heads, keys[1])
    hidden = norm(jax.nn.gelu(states[rows, places] @ w["mlm"].astype(kind), approximate=False), w["mlm_norm"])
    logits = (hidden @ w["words"].T.astype(kind)).astype(jnp.float32) + w["mlm_bias"]
    log_shares = jax.nn.log_softmax(logits)
    generator_loss = -jnp.take_along_axis(log_shares, targets[..., None], -1).mean()
    drawn = jnp.argmax(jax.lax.stop_gradient(logits) + jax.random.gumbel(sample, logits.shape), -1)
    replaced = ids.at[rows, places].set(drawn)

    states = encode(w["main"], embed(replaced, keys[2]), mask, s.heads, keys[3])
    found = jax.nn.gelu(states @ w["detect"].astype(kind), approximate=False) @ w["detect_out"].astype(kind)
    logit, label = found[..., 0].astype(jnp.float32), (replaced != ids).astype(jnp.float32)
    each = jnp.maximum(logit, 0) - logit * label + jnp.log1p(jnp.exp(-jnp.abs(logit)))
    return generator_loss + 50.0 * (each * mask).sum() / mask.sum()


def step(w: Weights, mean: Weights, variance: Weights, number: jax.Array, batch: Any, s: Sizes) -> Any:
    """One update. Returns the new weights, moments and number, and the loss."""
    loss, gradient = jax.value_and_grad(loss_of)(w, *batch, jax.random.fold_in(jax.random.key(0), number), s)
    total = jnp.sqrt(sum(jnp.square(one).sum() for one in jax.tree.leaves(gradient)))
    gradient = jax.tree.map(lambda one: one / jnp.maximum(total, 1.0), gradient)
    rate = 5e-4 * jnp.minimum(number / 10_000, 1.0) * (1 - number / 1_000_000)
    mean = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, mean, gradient)
    variance = jax.tree.map(lambda old, new: 0.999 * old + 0.001 * new * new, variance, gradient)
    w = jax.tree.map(
        lambda x, m, v: x - rate * (m / (jnp.sqrt(v) + 1e-6) + (0.01 * x if x.ndim > 1 else 0)), w, mean, variance
    )
    return w, mean, variance, number + 1, loss


def main() -> None:
    sizes = Sizes(**json.loads(Path(sys.argv[1]).read_text()))
    is_shape = lambda one: isinstance(one, tuple)  # noqa: E731
    weights = jax.tree.map(lambda one: jax.ShapeDtypeStruct(one, jnp.float32), shapes_of(sizes), is_leaf=is_shape)
    ids = jax.ShapeDtypeStruct((sizes.batch, sizes.length), jnp.int32)
    number = jax.ShapeDtypeStruct((), jnp.int32)
    compiled = jax.jit(step, static_argnums=5, donate_argnums=(0, 1, 2))
    traced = compiled.trace(weights, weights, weights, number, (ids, ids, ids), sizes)
    lowered = traced.lower(lowering_platforms=(sys.argv[2],))  # random bits are drawn otherwise on processors
    Path(sys.argv[3]).write_bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


if __name__ == "__main__":
    main()
