import pytest

from unweight.operations.tensor_roles import KINDS, kind_of

EXAMPLES = {
    "embedding": """
        model.embed_tokens.weight
        lm_head.weight
        embeddings.word_embeddings.weight
        bert.embeddings.position_embeddings.weight
        transformer.wte.weight
        wpe.weight
        shared.weight
        gpt_neox.embed_out.weight
        text_model.embeddings.token_embedding.weight
        vision_model.embeddings.patch_embedding.weight
        time_embedding.linear_1.weight
        model.diffusion_model.label_emb.0.0.weight
        token_embd.weight
        output.weight
    """,
    "attention": """
        model.layers.0.self_attn.q_proj.weight
        model.layers.0.self_attn.o_proj.weight
        encoder.layer.0.attention.self.query.weight
        encoder.layer.0.attention.output.dense.weight
        h.0.attn.c_attn.weight
        h.0.attn.c_proj.bias
        gpt_neox.layers.0.attention.query_key_value.weight
        encoder.block.0.layer.0.SelfAttention.q.weight
        decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight
        model.decoder.layers.0.encoder_attn.k_proj.weight
        down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.weight
        down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_out.0.bias
        blk.0.attn_q.weight
        rwkv.blocks.0.attention.key.weight
    """,
    "feed-forward": """
        model.layers.0.mlp.down_proj.weight
        model.layers.0.block_sparse_moe.experts.3.w1.weight
        model.layers.0.block_sparse_moe.gate.weight
        model.layers.0.mlp.experts.12.gate_proj.weight
        model.layers.0.mlp.shared_experts.up_proj.weight
        encoder.layer.0.intermediate.dense.weight
        encoder.layer.0.output.dense.weight
        h.0.mlp.c_fc.weight
        h.0.mlp.c_proj.weight
        model.decoder.layers.0.fc1.weight
        encoder.block.0.layer.1.DenseReluDense.wi_0.weight
        transformer.h.0.mlp.dense_4h_to_h.weight
        transformer_blocks.0.ff.net.0.proj.weight
        transformer_blocks.0.ff_context.net.2.weight
        transformer_blocks.0.img_mlp.net.0.proj.weight
        blk.0.ffn_down.weight
        blk.0.ffn_gate_exps.weight
    """,
    "convolution": """
        conv_in.weight
        down_blocks.0.resnets.0.conv1.weight
        up_blocks.0.upsamplers.0.conv.weight
        down_blocks.1.resnets.0.conv_shortcut.weight
        backbone.layers.0.mixer.conv1d.weight
    """,
    "norm": """
        model.layers.0.input_layernorm.weight
        model.layers.0.post_attention_layernorm.weight
        model.layers.0.self_attn.q_norm.weight
        model.norm.weight
        encoder.layer.0.attention.output.LayerNorm.bias
        embeddings.LayerNorm.weight
        h.0.ln_1.weight
        transformer.ln_f.bias
        encoder.block.0.layer.0.layer_norm.weight
        down_blocks.0.resnets.0.norm1.weight
        conv_norm_out.weight
        blk.0.attn_norm.weight
        output_norm.weight
        layer1.0.bn2.running_mean
    """,
    "other": """
        pooler.dense.weight
        classifier.bias
        backbone.layers.0.mixer.A_log
        weight
    """,
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in EXAMPLES.items() for name in names.split()]
)
def test_kind_of(kind: str, name: str) -> None:
    assert kind_of(name) == kind


def test_every_kind_has_a_place_in_the_table() -> None:
    assert set(EXAMPLES) == set(KINDS)
