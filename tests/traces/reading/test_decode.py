"""How events are decoded where that is not seen in a table."""

import pytest

from trainperf.traces.reading.decode import FAULTS, EventDecoder, trailing


@pytest.mark.parametrize("behind", [",1", "  ,1", "]", "\n ]}", "x"])
def test_the_place_where_a_list_ended_is_exact(behind: str) -> None:
    """All of the list is before it, so that one more decoding of that much gives the events."""
    body = b'[{"ph":"X","name":"a"}]' + behind.encode()
    with pytest.raises(FAULTS) as caught:
        EventDecoder().many(body)

    at = trailing(caught.value)

    assert at == len(body) - len(behind.lstrip())
    assert len(EventDecoder().many(body[:at])) == 1
