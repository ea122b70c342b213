"""An asynchronous PyTorch device that runs on this CPU: its streams are threads.

It is registered under PrivateUse1 by the name ``threaded`` and knows nothing of trainperf, which
knows nothing of it.  `README.md` beside this file says what it models and what it does not.
"""
