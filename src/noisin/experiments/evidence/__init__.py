"""Verdicts on the paper's claims: the decisions of section 3 of results/PLAN.md, as code.

The questions A to E are those of the plan. Each reads the final runs of its sweep, and answers by
the rule that was written down before the runs. Nothing here needs torch.
"""
