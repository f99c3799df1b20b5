from unweight_cli.render.histogram import columns


def test_the_largest_count_reaches_the_top_and_zero_stays_empty() -> None:
    lines = columns([0, 4, 8], height=2, width=3)
    assert lines == ["  █", " ██"]


def test_a_rare_count_is_still_visible() -> None:
    assert columns([1, 1_000_000], height=3, width=2)[-1] == "▁█"


def test_bars_grow_wider_where_there_is_room() -> None:
    assert columns([8, 8], height=1, width=6) == ["██████"]


def test_more_counts_than_columns_are_added_up() -> None:
    (line,) = columns([1] * 100, height=1, width=10)
    assert line == "█" * 10


def test_nothing_to_draw() -> None:
    assert columns([], height=3, width=10) == []
    assert columns([0, 0], height=3, width=10) == []
