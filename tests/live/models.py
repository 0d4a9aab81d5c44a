"""Tiny models with random weights. A model is only a config.json: no hub, no weight files, no tokenizer.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os

VOCAB = 1024
_BASE = dict(
    vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_attention_heads=2,
    num_key_value_heads=1, head_dim=32, max_position_embeddings=4096, rms_norm_eps=1e-6,
    bos_token_id=1, eos_token_id=2, pad_token_id=0, torch_dtype="bfloat16",
    tie_word_embeddings=True, attention_bias=False, attention_dropout=0.0, hidden_act="silu",
    rope_theta=10000.0,
)
_FULL, _SLIDING, _CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def _layers(pattern, count):
    return [pattern[i % len(pattern)] for i in range(count)]


def _llama(**kw):
    return _BASE | dict(model_type="llama", architectures=["LlamaForCausalLM"],
                        num_hidden_layers=4) | kw


def _eagle_llama(**kw):
    return _llama(num_hidden_layers=1, architectures=["EagleLlamaForCausalLM"]) | kw


def _gemma3(window=64, layers=6, **kw):
    return _BASE | dict(
        model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], num_hidden_layers=layers,
        hidden_activation="gelu_pytorch_tanh", sliding_window=window, query_pre_attn_scalar=32,
        layer_types=_layers([_SLIDING] * 5 + [_FULL], layers), rope_theta=1000000.0,
        rope_local_base_freq=10000.0,
        rope_parameters={_SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
                         _FULL: {"rope_type": "default", "rope_theta": 1000000.0}}) | kw


def _gemma2(window=64, layers=6, **kw):
    return _BASE | dict(
        model_type="gemma2", architectures=["Gemma2ForCausalLM"], num_hidden_layers=layers,
        hidden_activation="gelu_pytorch_tanh", sliding_window=window, query_pre_attn_scalar=32,
        attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
        layer_types=_layers([_SLIDING, _FULL], layers)) | kw


def _mistral(window=64, **kw):
    return _BASE | dict(model_type="mistral", architectures=["MistralForCausalLM"],
                        num_hidden_layers=4, sliding_window=window) | kw


def _cohere2(window=64, layers=8, **kw):
    return _BASE | dict(
        model_type="cohere2", architectures=["Cohere2ForCausalLM"], num_hidden_layers=layers,
        sliding_window=window, sliding_window_pattern=4, logit_scale=0.25, layer_norm_eps=1e-5,
        layer_types=_layers([_SLIDING] * 3 + [_FULL], layers)) | kw


def _gpt_oss(layers=6, window=64, **kw):
    return _BASE | dict(
        model_type="gpt_oss", architectures=["GptOssForCausalLM"], num_hidden_layers=layers,
        sliding_window=window, layer_types=_layers([_SLIDING, _FULL], layers),
        num_local_experts=4, num_experts_per_tok=2, attention_bias=True, swiglu_limit=7.0,
        rope_theta=150000.0, tie_word_embeddings=False) | kw


def _llama4(layers=8, chunk=128, **kw):
    return _BASE | dict(
        model_type="llama4_text", architectures=["Llama4ForCausalLM"], num_hidden_layers=layers,
        intermediate_size_mlp=128, attention_chunk_size=chunk,
        no_rope_layers=[1, 1, 1, 0] * (layers // 4),
        layer_types=_layers([_CHUNKED] * 3 + [_FULL], layers), num_experts_per_tok=1,
        num_local_experts=2, moe_layers=[], interleave_moe_layer_step=1000, use_qk_norm=True,
        attn_temperature_tuning=False, rope_scaling=None) | kw


def _lfm2(layers=8, **kw):
    return _BASE | dict(
        model_type="lfm2", architectures=["Lfm2ForCausalLM"], num_hidden_layers=layers,
        block_dim=64, block_ff_dim=128, block_multiple_of=32, block_ffn_dim_multiplier=1.0,
        block_auto_adjust_ff_dim=False, conv_L_cache=3, conv_bias=False, conv_dim=64,
        norm_eps=1e-5, layer_types=_layers(["conv"] * 3 + [_FULL], layers)) | kw


def _qwen3_next(layers=8, **kw):
    return _BASE | dict(
        model_type="qwen3_next", architectures=["Qwen3NextForCausalLM"], num_hidden_layers=layers,
        head_dim=64, linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_value_head_dim=128,
        linear_num_key_heads=2, linear_num_value_heads=2,
        layer_types=_layers(["linear_attention"] * 3 + [_FULL], layers), num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64,
        decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True,
        partial_rotary_factor=0.25) | kw


_MODELS = {
    "llama": _llama, "gemma3": _gemma3, "gemma2": _gemma2, "mistral": _mistral,
    "cohere2": _cohere2, "gpt_oss": _gpt_oss, "llama4": _llama4, "lfm2": _lfm2,
    "qwen3_next": _qwen3_next, "eagle_llama": _eagle_llama,
}
NAMES = [name for name in _MODELS if name != "eagle_llama"]


def write(name: str, folder: str) -> str:
    """Writes the model into `folder`. Returns `folder`."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(_MODELS[name](), file, indent=1)
    return folder



def write_adapter(name: str, folder: str, seed: int, rank: int = 8) -> str:
    """Writes a LoRA adapter with random weights for the model's query and value projections. Returns `folder`."""
    import torch
    from safetensors.torch import save_file

    config = _MODELS[name]()
    hidden, head = config["hidden_size"], config["head_dim"]
    widths = {"q_proj": config["num_attention_heads"] * head,
              "v_proj": config["num_key_value_heads"] * head}
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        for projection, width in widths.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{projection}"
            a = torch.randn(rank, hidden, generator=random) * 0.1
            b = torch.randn(width, rank, generator=random) * 0.1
            weights[f"{prefix}.lora_A.weight"] = a.to(torch.bfloat16)
            weights[f"{prefix}.lora_B.weight"] = b.to(torch.bfloat16)
    os.makedirs(folder, exist_ok=True)
    save_file(weights, os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank,
                   "lora_dropout": 0.0, "bias": "none", "target_modules": sorted(widths),
                   "base_model_name_or_path": name}, file)
    return folder
