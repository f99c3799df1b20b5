"""The manifest of a bounded file: what it says about errors must agree with itself."""

import json
from typing import Any

import pytest

from tests.unit.unweight.test_manifest import PIPELINES, SHA256, document, index, manifest, parse
from unweight.manifest import CodedTensor, Manifest, parse_manifest
from unweight_codecs.errors import FormatError, IntegrityError

RESTORED = "fedcba9876543210" * 4
ZETA = CodedTensor(0, "f" * 16, 0.01, 0.0097531, 0.000244140625)
ALPHA = CodedTensor(0, "e" * 16)  # an exact one beside it


def bounded(*tensors: CodedTensor) -> Manifest:
    coded = dict(zip(("zeta", "alpha"), tensors or (ZETA, ALPHA), strict=True))
    stored = {"größe \n\u2028": "0" * 16, "empty": "1" * 16}
    return Manifest(index(), SHA256, PIPELINES, coded, stored, restored_sha256=RESTORED)


def changed(**changes: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bounded().to_json())
    return found | changes


def test_round_trip() -> None:
    again = parse_manifest(bounded().to_json())
    assert again == bounded()
    assert again.to_json() == bounded().to_json()


def test_what_a_bounded_file_says() -> None:
    found = changed()
    assert found["mode"] == "bounded"
    assert found["features"] == ["bounded"]
    assert found["epsilon"] == 0.01
    assert found["source"]["sha256"] == SHA256
    assert found["source"]["restored_sha256"] == RESTORED
    errors = {"epsilon": 0.01, "error": 0.0097531, "max_error": 0.000244140625}
    assert {key: found["tensors"]["zeta"][key] for key in errors} == errors
    assert found["tensors"]["alpha"].keys() == {"digest", "dtype", "pipeline", "shape"}
    assert bounded().expected_sha256 == RESTORED


def test_what_a_lossless_file_says() -> None:
    """Nothing of the other mode."""
    found = document()
    assert "epsilon" not in manifest().to_json()
    assert found["features"] == []
    assert found["mode"] == "lossless"
    assert "restored_sha256" not in found["source"]
    assert found["tensors"]["zeta"].keys() == {"digest", "dtype", "pipeline", "shape"}
    assert manifest().expected_sha256 == SHA256


def test_the_largest_bound_is_that_of_the_file() -> None:
    found = bounded(ZETA, CodedTensor(0, "e" * 16, 0.25, 0.1, 1.0))
    assert found.epsilon == 0.25
    assert parse_manifest(found.to_json()).epsilon == 0.25


DISAGREEING: dict[str, dict[str, object]] = {
    "lossless with bounds": {"mode": "lossless"},
    "another bound": {"epsilon": 0.02},
    "a smaller bound": {"epsilon": 0.005},
    "no bound": {"epsilon": 0},
    "a negative bound": {"epsilon": -0.01},
}


@pytest.mark.parametrize("case", DISAGREEING)
def test_mode_and_bound_are_those_of_the_tensors(case: str) -> None:
    with pytest.raises(IntegrityError, match="mode and epsilon"):
        parse(changed(**DISAGREEING[case]))


def test_a_bounded_file_names_its_bound() -> None:
    found = changed()
    del found["epsilon"]
    with pytest.raises(IntegrityError, match="mode and epsilon"):
        parse(found)


@pytest.mark.parametrize("epsilon", [0, 0.0, 0.01])
def test_a_lossless_file_names_no_bound(epsilon: float) -> None:
    with pytest.raises(IntegrityError, match="mode and epsilon"):
        parse(document(epsilon=epsilon))


def test_bounds_in_tensors_of_a_lossless_file() -> None:
    found = document()
    found["tensors"]["zeta"] |= {"epsilon": 0.01, "error": 0.01, "max_error": 1.0}
    with pytest.raises(IntegrityError, match="mode and epsilon"):
        parse(found)


@pytest.mark.parametrize("value", [-1e-9, -1, 10**400, "0.01", None, True, [0.01], {}])
@pytest.mark.parametrize("key", ["epsilon", "error", "max_error"])
def test_errors_are_numbers_from_0_up(key: str, value: object) -> None:
    found = changed()
    found["tensors"]["zeta"][key] = value
    with pytest.raises(IntegrityError):
        parse(found)


@pytest.mark.parametrize("epsilon", [0, 0.0, 1.0000001, 2, 1e300])
def test_a_bound_is_above_0_and_at_most_1(epsilon: float) -> None:
    found = changed(epsilon=epsilon)
    found["tensors"]["zeta"]["epsilon"] = epsilon
    with pytest.raises(IntegrityError, match="'zeta' has the impossible epsilon"):
        parse(found)


def test_the_largest_bound_there_is() -> None:
    found = changed(epsilon=1)
    found["tensors"]["zeta"]["epsilon"] = 1
    assert parse(found).epsilon == 1


@pytest.mark.parametrize("key", ["epsilon", "error", "max_error"])
def test_an_error_has_all_of_its_numbers(key: str) -> None:
    lacking = changed()
    del lacking["tensors"]["zeta"][key]
    alone = document()
    alone["tensors"]["zeta"][key] = 0.01
    for found in (lacking, alone):
        with pytest.raises(IntegrityError, match=r"'zeta' has .* alone"):
            parse(found)


@pytest.mark.parametrize("features", [[], ["bounded"]])
def test_the_feature_is_that_of_the_mode(features: list[str]) -> None:
    other = document(features=features) if features else changed(features=features)
    with pytest.raises(IntegrityError, match="the feature bounded does not belong to its mode"):
        parse(other)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("key", ["epsilon", "error", "max_error"])
def test_errors_are_finite(key: str, text: str) -> None:
    value = json.dumps(changed()["tensors"]["zeta"][key])
    found = bounded().to_json().replace(f'"{key}":{value}', f'"{key}":{text}')
    assert text in found
    with pytest.raises(IntegrityError):
        parse_manifest(found)


def test_without_the_digest_of_what_is_restored() -> None:
    found = changed()
    del found["source"]["restored_sha256"]
    with pytest.raises(IntegrityError, match="restored file"):
        parse(found)


def test_a_lossless_file_with_a_digest_of_what_is_restored() -> None:
    found = document()
    found["source"]["restored_sha256"] = RESTORED
    with pytest.raises(IntegrityError, match="restored file"):
        parse(found)


@pytest.mark.parametrize("value", ["", RESTORED[:-1], RESTORED.upper(), 5, None])
def test_a_damaged_digest_of_what_is_restored(value: object) -> None:
    found = changed()
    found["source"]["restored_sha256"] = value
    with pytest.raises(IntegrityError):
        parse(found)


def test_another_feature_beside_it() -> None:
    with pytest.raises(FormatError, match="'delta'"):
        parse(changed(features=["bounded", "delta"]))
