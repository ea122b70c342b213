"""Choices as tables: the first case that holds, and texts that have something to say."""

from trainperf.core.choice import first_that_holds, texts_of


def test_the_first_case_that_holds_is_chosen() -> None:
    """Whatever is true of it; a case that holds later does not count, also one that came before."""
    assert first_that_holds(("no", 0), ("yes", "words"), ("later", True)) == "yes"
    assert first_that_holds(("again", False), ("yes", True), ("again", True)) == "yes"


def test_a_text_without_its_value_is_left_out() -> None:
    """What is not known, 0 or empty is none, whatever it is."""
    unknown: float | None = None
    number, names = 0, ("b",)
    texts = texts_of("a", unknown and f"{unknown}", number and f"{number}", names and "b", "", ())

    assert texts == ("a", "b")
