"""Error bounds in recipes: per rule, per tensor or for all; mistakes are named with their place."""

import math
from pathlib import Path

import pytest

from unweight.recipe import Recipe, check_epsilon, load_recipe
from unweight_codecs.bounded.level_grid import LevelGrid
from unweight_codecs.errors import UsageError
from unweight_codecs.payload.pack import Pack
from unweight_codecs.presets import BOUNDED, PRESETS

RECIPE = """
[[rule]]
tensors = "*.q_proj.weight"
preset = "max"
epsilon = 0.001
stages = ["grid:spacing=lloyd,tables=3"]

[[rule]]
tensors = "*embed*"
preset = "fast"
epsilon = 0

[[rule]]
tensors = "lm_head.*"
preset = "stored"

[[rule]]
tensors = "*.mlp.*"
preset = "fast"
"""


def load(folder: Path, text: str, epsilon: float = 0.01, *settings: str) -> Recipe:
    path = folder / "recipe.toml"
    path.write_text(text)
    return load_recipe("default", path, settings, epsilon)


def bounds(recipe: Recipe, tensor: str) -> list[tuple[str, float]]:
    return [(chosen.pipeline.name, chosen.epsilon) for chosen in recipe.choices_for(tensor)]


def test_each_rule_has_its_bound_and_an_exact_way_out(tmp_path: Path) -> None:
    recipe = load(tmp_path, RECIPE)
    assert recipe.is_bounded
    assert bounds(recipe, "layers.0.q_proj.weight") == [("max", 0), ("max bounded*", 0.001)]
    assert bounds(recipe, "embed.weight") == [("fast", 0)]
    assert bounds(recipe, "lm_head.weight") == []
    assert bounds(recipe, "layers.0.mlp.up.weight") == [("fast", 0), ("fast bounded", 0.01)]
    assert bounds(recipe, "norm.weight") == [("default", 0), ("default bounded", 0.01)]


def test_a_bound_in_a_rule_alone(tmp_path: Path) -> None:
    recipe = load(tmp_path, RECIPE, 0)
    assert recipe.is_bounded
    assert bounds(recipe, "layers.0.q_proj.weight")[1] == ("max bounded*", 0.001)
    assert bounds(recipe, "layers.0.mlp.up.weight") == [("fast", 0)]
    assert bounds(recipe, "norm.weight") == [("default", 0)]


def test_numbers_point_at_pipelines(tmp_path: Path) -> None:
    recipe = load(tmp_path, RECIPE)
    for tensor in ("a.q_proj.weight", "embed", "a.mlp.b", "c"):
        for chosen in recipe.choices_for(tensor):
            assert recipe.pipelines[chosen.number] == chosen.pipeline
            assert chosen.pipeline.is_exact == (chosen.epsilon == 0)


def test_settings_are_those_of_the_bounded_stages(tmp_path: Path) -> None:
    recipe = load(tmp_path, RECIPE, 0.01, "pack:chunk_log2=13")
    chosen = recipe.choices_for("layers.0.q_proj.weight")[1]
    assert chosen.pipeline.stages[1] == LevelGrid("lloyd", 3)
    assert chosen.pipeline.stages[4] == Pack(13)


def test_settings_of_the_command_are_for_its_own_mode(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[[rule]]\ntensors = "a"\nepsilon = 0\n\n[[rule]]\ntensors = "b"\nepsilon = 0.1\n'
    )
    recipe = load_recipe("default", path, ("grid:spacing=lloyd",), 0.01)
    assert bounds(recipe, "a") == [("default", 0)]
    assert bounds(recipe, "b") == [("default", 0), ("default bounded*", 0.1)]
    recipe = load_recipe("default", path, ("grid:mantissa_bits=1",))
    assert bounds(recipe, "a") == [("default*", 0)]
    assert bounds(recipe, "b") == [("default*", 0), ("default bounded", 0.1)]
    assert bounds(recipe, "c") == [("default*", 0)]


def test_bounds_by_name_replace_the_one_for_all_but_not_those_of_rules(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    epsilons = {"norm.weight": 0.2, "a.mlp.b": 0.3, "zero": 0.0}
    epsilons |= {"a.q_proj.weight": 0.4, "embed": 0.5}
    recipe = load_recipe("default", path, (), 0.01, epsilons)
    assert bounds(recipe, "norm.weight")[1] == ("default bounded", 0.2)
    assert bounds(recipe, "other")[1] == ("default bounded", 0.01)
    assert bounds(recipe, "a.mlp.b")[1] == ("fast bounded", 0.3)  # its rule has no bound of its own
    assert bounds(recipe, "a.q_proj.weight")[1] == ("max bounded*", 0.001)
    assert bounds(recipe, "embed") == [("fast", 0)]
    assert bounds(recipe, "zero") == [("default", 0)]


def test_a_rule_with_a_bound_alone_keeps_the_preset_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(
        '[[rule]]\ntensors = "a"\nepsilon = 0.02\n\n[[rule]]\ntensors = "b"\nepsilon = 0\n'
    )
    for preset in PRESETS:
        recipe = load_recipe(preset, path, (), 0.01)
        assert bounds(recipe, "a") == [(preset, 0), (f"{preset} bounded", 0.02)]
        assert bounds(recipe, "b") == [(preset, 0)]
        assert bounds(recipe, "c") == [(preset, 0), (f"{preset} bounded", 0.01)]


def test_a_rule_with_settings_alone_keeps_preset_and_bound_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('[[rule]]\ntensors = "a"\nstages = ["grid:tables=3"]\n')
    recipe = load_recipe("max", path, (), 0.01)
    assert bounds(recipe, "a") == [("max", 0), ("max bounded*", 0.01)]


@pytest.mark.parametrize("words", ["epsilon = 0.01", 'stages = ["grid:tables=3"]'])
@pytest.mark.parametrize("preset", ['preset = "stored"\n', ""])
def test_stored_tensors_have_neither_bound_nor_settings(
    preset: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(f'[[rule]]\ntensors = "a"\n{preset}{words}\n')
    with pytest.raises(UsageError, match="rule 1: the preset stored leaves tensors as they are"):
        load_recipe("stored", path, ())
    path.write_text(f'[[rule]]\ntensors = "a"\n{preset}epsilon = 0\n')
    assert load_recipe("stored", path, ()).choices_for("a") == ()


def test_without_a_bound_nothing_changes() -> None:
    for preset in PRESETS:
        recipe = load_recipe(preset, None, (), 0)
        assert not recipe.is_bounded
        assert recipe.pipelines == [PRESETS[preset]]
        assert load_recipe(preset, None, (), 0.5).pipelines == [BOUNDED[preset], PRESETS[preset]]


@pytest.mark.parametrize("epsilon", [0, 0.0, 1e-9, 0.0054, 1, 1.0])
def test_bounds_from_0_to_1(tmp_path: Path, epsilon: float) -> None:
    assert check_epsilon(epsilon) == epsilon
    rule = f'[[rule]]\ntensors = "*"\npreset = "fast"\nepsilon = {epsilon!r}\n'
    assert bounds(load(tmp_path, rule), "t")[-1][1] == epsilon


WRONG_IN_TOML = ["-0.1", "-1", "1.0001", "2", "nan", "inf", "-inf", "true", '"0.1"', "[0.1]"]


@pytest.mark.parametrize("text", WRONG_IN_TOML)
def test_other_bounds_are_named_with_file_and_line(tmp_path: Path, text: str) -> None:
    rule = '[[rule]]\ntensors = "a"\npreset = "fast"\n'
    rules = f"{rule}\n{rule}epsilon = {text}\n"
    with pytest.raises(UsageError) as refusal:
        load(tmp_path, rules)
    assert f"{tmp_path / 'recipe.toml'}:5: rule 2: epsilon must be" in refusal.value.message
    assert refusal.value.hint


@pytest.mark.parametrize("epsilon", [-1e-9, 1.5, math.nan, math.inf, True, "0.1", None])
def test_other_bounds_for_all(epsilon: object) -> None:
    with pytest.raises(UsageError, match="epsilon must be a number from 0 to 1"):
        check_epsilon(epsilon)


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("outlier:tau=-1", "stage outlier (channel_outlier): tau must be"),
        ("outlier:tau=nan", "tau must be"),
        ("outlier:base=5", "no setting 'base' (settings of outlier (channel_outlier): tau"),
        ("grid:spacing=log", "spacing must be one of auto, uniform, cdf, lloyd"),
        ("grid:tables=0", "stage grid (level_grid): tables must be"),
        ("grid:mantissa_bits=1", "no setting 'mantissa_bits'"),
        ("tile_svd:rank=17", "rank must be"),
        ("tile_svd:rank=1.5", "rank must be"),
        ("tile_svd:tile=-1", "tile must be"),
        ("bound:epsilon=0.1", "no setting 'epsilon'"),
        ("grid=histogram_grid", "cannot have both"),
    ],
)
def test_settings_that_make_no_sense(tmp_path: Path, setting: str, named: str) -> None:
    with pytest.raises(UsageError) as refusal:
        load_recipe("default", None, (setting,), 0.01)
    assert named in str(refusal.value)
    rule = f'[[rule]]\ntensors = "*"\npreset = "fast"\nepsilon = 0.1\nstages = ["{setting}"]\n'
    with pytest.raises(UsageError) as refusal:
        load(tmp_path, rule)
    assert "recipe.toml:1: rule 1: " in refusal.value.message


def test_stages_of_the_bounded_mode_are_no_settings_of_an_exact_pipeline() -> None:
    with pytest.raises(UsageError, match="cannot have both"):
        load_recipe("default", None, ("grid=level_grid",))
