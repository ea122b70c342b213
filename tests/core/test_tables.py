"""The table of every report."""

from dataclasses import replace

from trainperf.core.formatting.table import Table, markdown_table, text_table


OPERATORS = Table(
    head=("operator", "time", "called from"),
    rows=(("mm", "1.00 ms", "/home/me/project/train.py:31"), ("a" * 40, "20.0 ms", "b.py")),
    end_words=1,
)


def test_numbers_are_set_to_the_right_and_words_to_the_left() -> None:
    """At either end of the row."""
    head, first, second = text_table(OPERATORS)

    assert head.index("time") + 4 == first.index("1.00 ms") + 7 == second.index("20.0 ms") + 7
    assert head.index("called from") == first.index("/home") == second.index("b.py")


def test_a_row_that_is_too_wide_loses_letters_of_words_never_of_numbers() -> None:
    """Of a path the beginning, of any other name the end; at last a column of words."""
    _, first, second = text_table(OPERATORS, 50)
    narrow = text_table(OPERATORS, 24)

    assert max(map(len, (first, second))) <= 50
    assert first.endswith("train.py:31")
    assert "…" in first
    assert second.startswith("aaa")
    assert "…  20.0 ms" in second
    assert [line.split()[-2:] for line in narrow[1:]] == [["1.00", "ms"], ["20.0", "ms"]]
    assert not any("train.py" in line for line in narrow)


def test_of_a_stack_the_innermost_frame_is_kept_and_of_a_path_its_end() -> None:
    """That is the line to look at."""
    stack = "my/model.py(34): loss ← lib/trainer.py(90): wrapper_of_everything"
    table = Table(head=("call", "ms", "from"), rows=(("x", "1", stack),), end_words=1)
    path = replace(table, rows=(("x", "1", "a/very/long/folder/of/somebody/model.py"),))

    assert "my/model.py(34): loss" in text_table(table, 40)[1]
    assert text_table(path, 30)[1].endswith("model.py")


def test_wide_letters_take_two_columns() -> None:
    """As they do in a terminal."""
    _, first, second = text_table(Table(head=("", "n"), rows=(("模型", "1"), ("abcd", "2"))))

    assert first == "模型  1"
    assert second == "abcd  2"


def test_a_name_opens_no_cell_and_no_escape_sequence() -> None:
    """In either form."""
    hostile = Table(head=("name",), rows=(("a|b\x1b[31m\n",),))

    assert "\x1b" not in "".join(text_table(hostile))
    assert markdown_table(hostile).splitlines()[2].startswith("| a\\|b")
    assert len(markdown_table(hostile).splitlines()) == 3


def test_markdown_sets_numbers_to_the_right() -> None:
    """By the rule beneath the head."""
    assert markdown_table(OPERATORS).splitlines()[1] == "| --- | ---: | --- |"


def test_names_of_columns_take_two_lines_before_a_column_goes() -> None:
    """Where the numbers fit and only the head does not."""
    table = Table(
        head=("rank", "exposed communication", "all-reduce tail"), rows=(("0", "5.54 ms", "9 µs"),)
    )

    assert text_table(table, 30) == [
        "            exposed  all-reduce",
        "rank  communication        tail",
        "0           5.54 ms        9 µs",
    ]
