"""For a Hugging Face `Trainer`: attach one callback, get the answer.

from trainperf.huggingface import TrainPerfCallback

Trainer(model, args, train_dataset=dataset, callbacks=[TrainPerfCallback()]).train()
"""

from trainperf.huggingface.callback import TrainPerfCallback


__all__ = ["TrainPerfCallback"]
