"""The smoke test of a model that answers: each fault fails it, and names what to do."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainperf.smoke import SmokeFailure, assert_inference


class Custom(nn.Module):
    """Drops by its mode, in code of its own."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """As models of transformers do."""
        return functional.dropout(x, self.dropout, training=self.training)


class Always(nn.Module):
    """Drops in any mode."""

    def forward(self, x: Tensor) -> Tensor:
        """As `F.dropout` does by default."""
        return functional.dropout(x, 0.5)


REQUEST = torch.ones(4, 8)


def test_a_model_in_eval_mode_without_a_graph_passes() -> None:
    """And one in train mode that answers alike in both."""
    with torch.inference_mode():
        assert_inference(
            nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout()).eval(), REQUEST
        )
        assert_inference(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.0), Custom(0.0)), REQUEST)


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (nn.Dropout(0.1), "1 Dropout"),
        (nn.BatchNorm1d(8), "1 BatchNorm1d"),
        (Custom(0.1), "1 Custom"),
        (nn.TransformerEncoderLayer(8, 2), "Dropout"),
    ],
    ids=["dropout", "batch norm", "of its own", "attention"],
)
def test_train_mode_fails_where_it_changes_answers(part: nn.Module, named: str) -> None:
    """Named by kind."""
    with torch.inference_mode(), pytest.raises(SmokeFailure, match="train mode") as failure:
        assert_inference(nn.Sequential(nn.Linear(8, 8), part), REQUEST)
    assert named in failure.value.saw
    assert "model.eval()" in failure.value.do


def test_a_graph_fails_with_its_size() -> None:
    """The input is kept for the gradient of the weight."""
    with pytest.raises(SmokeFailure, match="inference_mode") as failure:
        assert_inference(nn.Linear(8, 8).eval(), REQUEST)
    assert "2 nodes, which keep 128 B" in failure.value.saw  # t(weight), addmm(request)


def test_dropout_that_asks_for_no_mode_fails() -> None:
    """By the answers themselves."""
    with torch.inference_mode(), pytest.raises(SmokeFailure, match="another answer") as failure:
        assert_inference(nn.Sequential(nn.Linear(8, 8), Always()).eval(), REQUEST)
    assert "training=self.training" in failure.value.do
