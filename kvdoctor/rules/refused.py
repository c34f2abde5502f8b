"""KV1xx: vLLM refuses to launch."""

import math
import re

from kvdoctor.plan import LayerPlan, Plan
from kvdoctor.rules.advice import backend_remedy, is_given, nearest_backends, remedy
from kvdoctor.rules.interface import Evidence, Finding, Rule, RuleContext
from kvdoctor.rules.numbers import grouped
from kvdoctor.rules.refusal_text import HashDoesNotDivide, NoAttentionBackend, PagesNotUnifiable, RemoteCodeNeeded
from kvdoctor.rules.requirements import HASH_BLOCK
from kvdoctor.rules.stages import stage_advice
from kvdoctor.rules.values import only_the_block

# How KV103 begins where it has nothing to add to vLLM's words.
QUOTES = "vLLM refuses at"
# Pull request 51108.
HIDDEN_STATES_DIVIDE = (0, 28)


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

    ## Example
    Qwen3.5-0.8B with extracted hidden states on vLLM 0.27.1: blocks 544 and 181, hash block 98,464, which is their product.
    """

    id = "KV101"
    name = "block-not-divisible-by-hash"
    severity = "error"
    urls = ("https://github.com/vllm-project/vllm/pull/51108", "https://github.com/vllm-project/vllm/issues/51180")
    requires = (HASH_BLOCK,)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Compare vLLM's figures: those of its refusal where it gives them, else the plan's."""
        refused = context.refusal if isinstance(context.refusal, HashDoesNotDivide) else None
        if refused is None and context.layout.prefix_caching is False:
            return ()  # nothing is hashed
        hash_block = (refused.hash_block_size if refused else None) or context.layout.hash_block_size
        sizes = list(refused.block_sizes) if refused else []
        sizes = sizes or [group.block_size for group in context.layout.groups if group.prefix_cacheable]
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
    advice, given = [], context.plan.given_arguments
    if any(layer.kind == "hidden_state" for layer in context.plan.layers) and _release(context.plan) < HIDDEN_STATES_DIVIDE:
        advice.append("use vLLM 0.28.0 or newer, which gives hidden states a block that divides the others")
    if context.plan.launch.mamba_cache_mode not in (None, "align") and given.get("mamba_cache_mode") != "align":
        advice.append("pass --mamba-cache-mode align")
    if not is_given("--no-enable-prefix-caching", given):
        advice.append("pass --no-enable-prefix-caching")
    text = ", or ".join(advice) or "report it to vLLM: prefix caching is off already"
    return text[0].upper() + text[1:] + stage_advice(context.plan, "block")


def _release(plan: Plan) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", plan.engine.vllm_version)[:2])


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

    ## Example
    A page of 1,136,064 bytes beside one of 3,408,192: a quantised KV cache with a drafter that does not take it (issue 41559).
    """

    id = "KV102"
    name = "page-sizes-not-unifiable"
    severity = "error"
    urls = ("https://github.com/vllm-project/vllm/issues/40388", "https://github.com/vllm-project/vllm/issues/43626")

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
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
        return (self.finding(message, remediation=remediation + stage_advice(context.plan, "page"), evidence=evidence),)


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

    ## Example
    A batch of 128 tokens for 256 sequences: vLLM wants `max_num_batched_tokens` to be at least `max_num_seqs`.
    """

    id = "KV103"
    name = "launch-refused"
    severity = "error"
    urls = ("https://docs.vllm.ai/en/latest/configuration/engine_args/",)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Quote vLLM where no other rule has read the refusal; of the attention backends, name the nearest."""
        refusal, given = context.plan.refusal, context.plan.given_arguments
        if refusal is None or refusal.accident:
            return ()
        evidence: Evidence = {"stage": refusal.stage, "exception": refusal.exception}
        if isinstance(context.refusal, NoAttentionBackend) and not only_the_block(context.refusal):
            refused = context.refusal
            who = "no attention backend takes" if refused.selected is None else f"the attention backend {refused.selected} does not take"
            message = f"{who} the model's layers under these settings: {nearest_backends(refused)}"
            return (self.finding(message, remediation=backend_remedy(refused, given), evidence=evidence),)
        if context.refusal is not None:
            return ()
        words = " ".join(refusal.message.split()).rstrip(".") or "no message"
        return (
            self.finding(
                f"{QUOTES} {refusal.stage}: {refusal.exception}: {words}",
                remediation=remedy(refusal.message, given) + stage_advice(context.plan, refusal.message),
                evidence=evidence,
            ),
        )


class CodeFailed(Rule):
    """vLLM's code failed by accident, and not by a check.

    ## What it does
    Tells an accident inside vLLM (a missing attribute, a key, a wrong type) from a check that refuses the launch, and says what failed.

    ## Why it is bad
    The same code runs on the machine with the GPUs, so a boot probably fails there too. It is not certain: no check of vLLM's looked at
    the launch, and the code may have met something that a GPU has and kvdoctor stands in for.

    ## What to do
    Ask another release with `--vllm`, look for the error in vLLM's issues, and try a boot before you rely on either answer.

    ## Example
    DeepSeek-V4-Flash with `--block-size 32` on vLLM 0.33: a division by zero while the KV cache is planned.
    """

    id = "KV109"
    name = "vllm-code-failed"
    severity = "error"
    urls = ("https://github.com/vllm-project/vllm/issues",)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
        """Report the accident, with the release that it happened in."""
        refusal, release = context.plan.refusal, context.plan.engine.vllm_version
        if refusal is None or not refusal.accident:
            return ()
        words = " ".join(refusal.message.split()).rstrip(".") or "no message"
        return (
            self.finding(
                f"the code of vLLM {release} failed at {refusal.stage}, not by a check: {refusal.exception}: {words}; "
                "a boot probably fails there too, but that is not certain",
                remediation="Ask another release with --vllm, or try a boot: no check of vLLM's has refused this launch",
                evidence={"stage": refusal.stage, "exception": refusal.exception, "vllm_version": release},
            ),
        )


class RemoteCodeIsNeeded(Rule):
    """The model's config asks for code from its repository.

    ## What it does
    Recognises vLLM's refusal to load a model whose classes are Python files in the model's repository.

    ## Why it is bad
    vLLM does not run such code unless it is told to, and neither does kvdoctor: running it means to trust its author.

    ## What to do
    Read the code. Then pass `--trust-remote-code`, or use a release of vLLM that has the architecture built in.

    ## Example
    A config whose `auto_map` names classes in Python files of the model's repository.
    """

    id = "KV108"
    name = "remote-code-needed"
    severity = "error"
    urls = ("https://docs.vllm.ai/en/latest/models/supported_models/",)

    def check(self, context: RuleContext) -> tuple[Finding, ...]:
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
