"""What pytest leaves out of the doctests: a module that needs a process of its own."""

import os

collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["values.py"]
