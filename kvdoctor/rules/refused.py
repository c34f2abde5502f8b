"""KV1xx: vLLM refuses to launch."""

import math
import re

from kvdoctor.plan import LayerPlan
from kvdoctor.rules.interface import Evidence, Finding, Rule, RuleContext, Skipped
from kvdoctor.rules.numbers import grouped
from kvdoctor.rules.refusal_text import HashDoesNotDivide, PagesNotUnifiable, RemoteCodeNeeded


class BlockNotDivisibleByHash(Rule):
    """A prefix-cacheable group's block size is not a multiple of the hash block size.

    ## What it does
    Checks that the hash block size divides the block size of every group that takes part in prefix caching.

    ## Why it is bad
    vLLM hashes prompts in hash blocks and looks up whole blocks of each group. A group whose block is no multiple of the hash block can
    not be looked up: vLLM fails an assertion while it builds the KV-cache coordinator, minutes into the launch.

    ## What to do
    Use vLLM 0.28.0 or newer where extracted hidden states are the cause (pull request 51108). Where a Mamba cache mode other than
    `align` is, pass `--mamba-cache-mode align`. Else turn prefix caching off with `--no-enable-prefix-caching`.
    """

    id = "KV101"
    name = "block-not-divisible-by-hash"
    severity = "error"
    urls = ("https://github.com/vllm-project/vllm/pull/51108", "https://github.com/vllm-project/vllm/issues/51180")

    def check(self, context: RuleContext) -> tuple[Finding, ...] | Skipped:
        """Compare vLLM's figures: those of its refusal where it gives them, else the plan's."""
        refused = context.refusal if isinstance(context.refusal, HashDoesNotDivide) else None
        if refused is None and context.layout.prefix_caching is False:
            return ()  # nothing is hashed
        hash_block = (refused.hash_block_size if refused else None) or context.layout.hash_block_size
        sizes = list(refused.block_sizes) if refused else []
        sizes = sizes or [group.block_size for group in context.layout.groups if group.prefix_cacheable]
        if refused is None and (hash_block is None or not sizes):
            return Skipped(reason="the hash block size was not settled")
        odd = sorted({size for size in sizes if hash_block and size % hash_block})
        if refused is None and not odd:
            return ()
        evidence: Evidence = {}
        if odd and hash_block:
            evidence = {"block_sizes": sizes, "hash_block_size": hash_block, "lcm": math.lcm(*sizes), "gcd": math.gcd(*sizes)}
        return (self.finding(_indivisible(odd, hash_block), remediation=_hash_advice(context), evidence=evidence),)


def _indivisible(odd: list[int], hash_block: int | None) -> str:
    if not odd or hash_block is None:
        return "a block size is not a multiple of the hash block size"
    if len(odd) == 1:
        return f"block {grouped(odd[0])} is not a multiple of hash block {grouped(hash_block)}"
    return f"blocks {' and '.join(map(grouped, odd))} are not multiples of hash block {grouped(hash_block)}"


def _hash_advice(context: RuleContext) -> str:
    advice = []
    if any(layer.kind == "hidden_state" for layer in context.plan.layers):
        advice.append("use vLLM 0.28.0 or newer, which gives hidden states a block that divides the others")
    if context.plan.launch.mamba_cache_mode not in (None, "align"):
        advice.append("pass --mamba-cache-mode align")
    advice.append("pass --no-enable-prefix-caching")
    text = ", or ".join(advice)
    return text[0].upper() + text[1:]


class PageSizesNotUnifiable(Rule):
    """The layers' page sizes cannot be brought to one size.

    ## What it does
    Recognises vLLM's refusal to group layers whose pages differ, and names the layer, the widest layer, and the bytes of their pages.

    ## Why it is bad
    All groups draw blocks from one pool, so their pages must have one size. vLLM enlarges block sizes or pads pages to get there; when a
    page neither divides the widest nor may be padded (MLA and sparse MLA), it refuses.

    ## What to do
    Make the pages alike: the same `--kv-cache-dtype` for all layers, a draft model with the target's head size and dtype, another
    `--block-size`, or no draft model.
    """

    id = "KV102"
    name = "page-sizes-not-unifiable"
    severity = "error"
    urls = ("https://github.com/vllm-project/vllm/issues/40388", "https://github.com/vllm-project/vllm/issues/43626")

    def check(self, context: RuleContext) -> tuple[Finding, ...] | Skipped:
        """Find the two layers among the specs that were settled before the refusal."""
        refused = context.refusal
        if not isinstance(refused, PagesNotUnifiable):
            return ()
        layers = context.plan.layers
        widest = max(layers, key=lambda layer: layer.page_bytes, default=None)
        odd = _odd_layer(layers, refused)
        evidence: Evidence = {}
        if widest is not None and odd is not None:
            message = (
                f"page of {odd.name} ({grouped(odd.page_bytes)} bytes) cannot be brought to that of "
                f"{widest.name} ({grouped(widest.page_bytes)} bytes)"
            )
            evidence = {
                "layer": odd.name,
                "page_bytes": odd.page_bytes,
                "widest_layer": widest.name,
                "widest_page_bytes": widest.page_bytes,
            }
        elif refused.page_bytes:
            message = f"a page of {grouped(refused.page_bytes[0])} bytes cannot be brought to {grouped(refused.page_bytes[-1])} bytes"
            evidence = {"page_bytes": refused.page_bytes[0], "widest_page_bytes": refused.page_bytes[-1]}
        else:
            message = f"page of {refused.layer or 'a layer'} cannot be brought to the size of the widest page"
            evidence = {"layer": refused.layer} if refused.layer else {}
        draft = any(layer.draft for layer in layers)
        remediation = "Pass one --kv-cache-dtype for all layers or another --block-size"
        if draft:
            remediation = "Launch without the draft model, or use one whose KV heads, head size and dtype are the target's"
        return (self.finding(message, remediation=remediation, evidence=evidence),)


def _odd_layer(layers: tuple[LayerPlan, ...], refused: PagesNotUnifiable) -> LayerPlan | None:
    """Find the layer that vLLM names, else the first whose page does not divide the widest."""
    widest = max((layer.page_bytes for layer in layers), default=0)
    named = (layer for layer in layers if layer.name == refused.layer)
    indivisible = (layer for layer in layers if layer.page_bytes and widest % layer.page_bytes)
    return next(named, None) or next(indivisible, None)


class LaunchRefused(Rule):
    """The launch is refused, for a reason that no other rule covers.

    ## What it does
    Reports a refusal that no other rule reports, in vLLM's own words, with the step that refused and the flag it is likely about.

    ## Why it is bad
    The same command line ends the same way on the machine with the GPUs, after the weights have been loaded.

    ## What to do
    Follow vLLM's message. Where it speaks of a setting, kvdoctor names the flag.
    """

    id = "KV103"
    name = "launch-refused"
    severity = "error"
    urls = ("https://docs.vllm.ai/en/latest/configuration/engine_args/",)

    def check(self, context: RuleContext) -> tuple[Finding, ...] | Skipped:
        """Quote vLLM where no other rule has read the refusal."""
        refusal = context.plan.refusal
        if refusal is None or context.refusal is not None:
            return ()
        words = " ".join(refusal.message.split()).rstrip(".") or "no message"
        flag = likely_flag(refusal.message)
        return (
            self.finding(
                f"vLLM refuses at {refusal.stage}: {refusal.exception}: {words}",
                remediation=f"Change {flag}, which vLLM's message is about" if flag else "Follow vLLM's message, which names no flag",
                evidence={"stage": refusal.stage, "exception": refusal.exception},
            ),
        )


# What vLLM's messages say, and the flag that it is about; the first match wins.
_FLAGS = (
    (r"No valid attention backend", "--attention-backend, --kv-cache-dtype or --gpu"),
    (r"prefix_match_unit", "--prefix-match-unit"),
    (r"[Hh]ybrid KV cache manager is disabled|Failed to promote local KV cache specs", "--no-disable-hybrid-kv-cache-manager"),
    (r"cannot express this model's mixed page sizes", "VLLM_KV_CACHE_LAYOUT"),
    (r"max_num_batched_tokens", "--max-num-batched-tokens"),
    (r"decode_context_parallel|dcp_size|\bDCP\b", "--decode-context-parallel-size"),
    (r"tensor[_ ]parallel[_ ]size", "--tensor-parallel-size"),
    (r"pipeline[_ ]parallel[_ ]size", "--pipeline-parallel-size"),
    (r"number of available GPUs|World size", "--tensor-parallel-size or --pipeline-parallel-size"),
    (r"[Nn]o common block size|[Bb]lock[_ ]size", "--block-size"),
    (r"kv[_ ]cache[_ ]dtype|FP8 KV cache|fp8.{0,20}KV cache", "--kv-cache-dtype"),
    (r"max_model_len|maximum model length", "--max-model-len"),
    (r"max_num_seqs", "--max-num-seqs"),
    (r"gpu_memory_utilization", "--gpu-memory-utilization"),
    (r"quantization", "--quantization"),
    (r"speculative", "--speculative-config"),
    (r"cudagraph_mode|CUDA graph", "--compilation-config"),
    (r"dtype", "--dtype"),
)


def likely_flag(message: str) -> str | None:
    """Name the flag that a refusal is likely about: one that it spells out, else one that its words are known to mean."""
    if spelled := re.search(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)+(?![\w-])", message):
        return spelled[0]
    return next((flag for pattern, flag in _FLAGS if re.search(pattern, message)), None)


class RemoteCodeIsNeeded(Rule):
    """The model's config asks for code from its repository.

    ## What it does
    Recognises vLLM's refusal to load a model whose classes are Python files in the model's repository.

    ## Why it is bad
    vLLM does not run such code unless it is told to, and neither does kvdoctor: running it means to trust its author.

    ## What to do
    Read the code. Then pass `--trust-remote-code`, or use a release of vLLM that has the architecture built in.
    """

    id = "KV108"
    name = "remote-code-needed"
    severity = "error"
    urls = ("https://docs.vllm.ai/en/latest/models/supported_models/",)

    def check(self, context: RuleContext) -> tuple[Finding, ...] | Skipped:
        """Recognise the refusal."""
        if not isinstance(context.refusal, RemoteCodeNeeded):
            return ()
        model = context.request.model.text if context.request.model else "the model"
        return (
            self.finding(
                f"{model} needs code from its own repository, and --trust-remote-code was not given",
                remediation="Read that code, then pass --trust-remote-code, or use a vLLM release that has the architecture built in",
                evidence={},
            ),
        )
