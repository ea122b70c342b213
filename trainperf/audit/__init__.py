"""Audit of one training step, operator by operator.

from trainperf.audit import audit_step

audit = audit_step(lambda: train_one_step(batch))
print(audit.model_flops, audit.hardware_flops)
"""

from trainperf.audit.step import Audit, audit_step


__all__ = ["Audit", "audit_step"]
