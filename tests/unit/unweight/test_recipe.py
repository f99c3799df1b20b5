"""Recipes: the first rule that matches decides, and every mistake is named with its place."""

import re
from pathlib import Path

import pytest

from unweight.containers.base import FileSource
from unweight.containers.safetensors import read_index
from unweight.recipe import MAX_RECIPE_BYTES, Recipe, load_recipe
from unweight.stage_settings import with_settings
from unweight_codecs.errors import ResourceError, UsageError
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.presets import PRESETS, preset

ROOT = Path(__file__).parents[3]
RECIPE = """
[[rule]]
tensors = "*.self_attn.[qk]_proj.weight"
preset = "max"
stages = ["grid:mantissa_bits=1"]

[[rule]]
tensors = ["*embed*", "lm_head.*"]
preset = "stored"

[[rule]]
tensors = "layers.0.*"
preset = "fast"
"""


def load(folder: Path, text: str, preset_name: str = "default", *settings: str) -> Recipe:
    path = folder / "recipe.toml"
    path.write_text(text)
    return load_recipe(preset_name, path, settings)


def grid_of(recipe: Recipe, tensor: str) -> HistogramGrid:
    (chosen,) = recipe.choices_for(tensor)
    grid = chosen.pipeline.stages[1]
    assert isinstance(grid, HistogramGrid)
    return grid


@pytest.mark.parametrize(
    ("tensor", "name"),
    [
        ("layers.0.self_attn.q_proj.weight", "max*"),
        ("layers.7.self_attn.k_proj.weight", "max*"),
        ("layers.0.self_attn.v_proj.weight", "fast"),
        ("layers.7.self_attn.v_proj.weight", "default"),
        ("LAYERS.0.mlp", "default"),
        ("", "default"),
    ],
)
def test_the_first_rule_that_matches_wins(tmp_path: Path, tensor: str, name: str) -> None:
    (chosen,) = load(tmp_path, RECIPE).choices_for(tensor)
    assert chosen.pipeline.name == name


@pytest.mark.parametrize("tensor", ["model.embed_tokens.weight", "lm_head.weight"])
def test_stored_leaves_a_tensor_alone(tmp_path: Path, tensor: str) -> None:
    assert load(tmp_path, RECIPE).choices_for(tensor) == ()


def test_numbers_point_at_pipelines_without_repetition(tmp_path: Path) -> None:
    recipe = load(tmp_path, RECIPE + '[[rule]]\ntensors = "x"\npreset = "fast"\n')
    assert len(recipe.pipelines) == 3
    for tensor in ("layers.0.self_attn.q_proj.weight", "layers.0.mlp", "x", "anything"):
        (chosen,) = recipe.choices_for(tensor)
        assert recipe.pipelines[chosen.number] == chosen.pipeline


def test_settings_of_the_command_apply_to_every_rule(tmp_path: Path) -> None:
    recipe = load(tmp_path, RECIPE, "default", "grid:tables=2")
    assert grid_of(recipe, "layers.0.mlp") == HistogramGrid(mantissa_bits=0, tables=2)
    assert grid_of(recipe, "other") == HistogramGrid(tables=2)
    assert grid_of(recipe, "a.self_attn.q_proj.weight").mantissa_bits == 1


def test_without_a_file_the_preset_takes_everything() -> None:
    recipe = load_recipe("max", None, ())
    assert recipe.pipelines == [PRESETS["max"]]
    (chosen,) = recipe.choices_for("anything")
    assert (chosen.number, chosen.pipeline.name, chosen.epsilon) == (0, "max", 0)


def test_an_empty_recipe_is_the_preset(tmp_path: Path) -> None:
    assert load(tmp_path, "").pipelines == [PRESETS["default"]]


def test_the_recipe_in_the_documents_fits_the_tiny_model() -> None:
    recipe = load_recipe("default", ROOT / "docs/recipes/conservative-attention.toml", (), 0.005)
    with FileSource(ROOT / "fixtures/models/tiny-llama/model.safetensors") as source:
        names = [entry.spec.name for entry in read_index(source).tensors]
    found: dict[float, set[str]] = {}
    for name in names:
        epsilon = recipe.choices_for(name)[-1].epsilon
        found.setdefault(epsilon, set()).add(
            re.sub(r"^model\.(layers\.\d+\.)?|\.weight$", "", name)
        )
    assert found == {
        0: {"embed_tokens"},
        0.0025: {"self_attn.q_proj", "self_attn.k_proj"},
        0.01: {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"},
        # Vectors are coded without error whatever their bound.
        0.005: {
            *("self_attn.v_proj", "self_attn.o_proj"),
            *("input_layernorm", "post_attention_layernorm", "norm"),
        },
    }
    gguf = {"blk.0.ffn_gate_inp.weight": 0, "blk.0.ffn_gate.weight": 0.01, "output.weight": 0}
    for name, epsilon in gguf.items():
        assert recipe.choices_for(name)[-1].epsilon == epsilon


WRONG = {
    "not TOML": ("[[rule]", "not valid TOML"),
    "not text": ("\x00", "not valid TOML"),
    "unknown table": ("[other]\na = 1\n", "[[rule]] tables only"),
    "rule that is a table": ('[rule]\ntensors = "*"\npreset = "fast"\n', "[[rule]] tables only"),
    "rule that is a number": ("rule = [1]\n", "rule 1: a rule has the keys"),
    "unknown key": ('[[rule]]\ntensors = "*"\npreset = "fast"\ncolour = 1\n', "rule 1"),
    "no pattern": ('[[rule]]\npreset = "fast"\n', "rule 1"),
    "nothing but a pattern": ('[[rule]]\ntensors = "*"\n', "rule 1: a rule has the keys"),
    "pattern that is a number": ('[[rule]]\ntensors = 3\npreset = "fast"\n', "tensors must be"),
    "preset that is a number": ('[[rule]]\ntensors = "*"\npreset = 3\n', "preset must be"),
    "stages that are text": (
        '[[rule]]\ntensors = "*"\npreset = "fast"\nstages = "grid:tables=1"\n',
        "stages must be",
    ),
    "unknown preset": ('[[rule]]\ntensors = "*"\npreset = "tiny"\n', "unknown preset 'tiny'"),
    "mistake in the second rule": (
        '[[rule]]\ntensors = "a"\npreset = "fast"\n[[rule]]\ntensors = "b"\npreset = "tiny"\n',
        "rule 2: unknown preset",
    ),
    "setting out of range": (
        '[[rule]]\ntensors = "*"\npreset = "fast"\nstages = ["grid:tables=0"]\n',
        "rule 1: stage grid (histogram_grid): tables",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_recipe_must_not_say(tmp_path: Path, case: str) -> None:
    text, named = WRONG[case]
    with pytest.raises(UsageError) as refusal:
        load(tmp_path, text)
    assert str(tmp_path / "recipe.toml") in refusal.value.message
    assert named in refusal.value.message


def test_a_line_is_named_only_where_it_is_sure(tmp_path: Path) -> None:
    rules = '# a\n\n  [[ rule ]]\ntensors = "a"\n\n[[rule]]  # b\ntensors = 3\npreset = "fast"\n'
    for text, where in (
        (rules.replace('= "a"', '= "a"\npreset = "fast"'), "recipe.toml:7: rule 2: "),
        ('rule = [{tensors = 3, preset = "fast"}]\n', "recipe.toml: rule 1: "),
        ("rule = [1]\n[[other]]\n", "recipe.toml: a recipe holds"),
    ):
        with pytest.raises(UsageError) as refusal:
            load(tmp_path, text)
        assert f"{tmp_path}/{where}" in refusal.value.message


def test_recipes_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="cannot be read"):
        load_recipe("fast", tmp_path / "missing.toml", ())
    with pytest.raises(UsageError, match="too large"):
        load(tmp_path, "#" * (MAX_RECIPE_BYTES + 1))
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(UsageError, match="not valid TOML"):
        load_recipe("fast", tmp_path / "latin.toml", ())


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("grid", "not of the form"),
        ("grid:", "not of the form"),
        ("", "not of the form"),
        ("cloud:size=1", "no stage cloud"),
        ("grid:tables", "'tables' is not of the form"),
        ("grid:size=1", "no setting 'size'"),
        ("grid:tables=many", "'many' is not a number"),
        ("grid:tables=1.5", "tables must be"),
        ("grid:tables=1,,", "'' is not of the form"),
        ("pack:chunk_log2=30", "chunk_log2 must be"),
        ("tile_svd:classes=17", "classes must be"),
        ("bound:epsilon=0.1", "no setting 'epsilon'"),
        ("outlier:base=-2", "base must be"),
        ("grid=pack", "a codec for pack, not grid"),
        ("grid=nothing.there", "there is no codec 'nothing.there'"),
    ],
)
def test_settings_that_make_no_sense(setting: str, named: str) -> None:
    with pytest.raises(UsageError) as refusal:
        with_settings(preset("default"), [setting])
    assert named in str(refusal.value)


def test_settings_change_one_stage_and_mark_the_name() -> None:
    changed = with_settings(
        preset("default"), ["grid:tables=2,mantissa_bits=1", "tile_svd=scale_classes"]
    )
    assert changed.name == "default*"
    assert changed.stages[1] == HistogramGrid(tables=2, mantissa_bits=1)
    assert with_settings(preset("default"), []) == preset("default")


def test_rules_that_no_tensor_follows(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[[rule]]\ntensors = "*.weight"\nepsilon = 0\n'
        '[[rule]]\ntensors = "nothing.*"\nepsilon = 0\n'
        '[[rule]]\ntensors = "a.weight"\nepsilon = 0\n'  # the first rule wins
        '[[rule]]\ntensors = "b.*"\npreset = "stored"\n'
    )
    recipe = load_recipe("default", path, (), 0.1)
    assert recipe.idle_rules(["a.weight", "b.bias", "c"]) == [2, 3]
    assert recipe.idle_rules([]) == [1, 2, 3, 4]
    assert load_recipe("default", None, ()).idle_rules([]) == []


def test_an_error_bound_without_effect(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="epsilon has no effect with the preset stored"):
        load_recipe("stored", None, (), 0.1)
    path = tmp_path / "recipe.toml"
    path.write_text('[[rule]]\ntensors = "a"\npreset = "fast"\n')
    assert load_recipe("stored", path, (), 0.1).is_bounded


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "[" * 50_000, "nested too deeply"),
        ("rule = 3", "holds [[rule]] tables only, not rule = 3"),
    ],
    ids=["nested", "no-table"],
)
def test_files_that_are_no_recipes(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        load(tmp_path, text)
