"""Train a MiniGPT with a tied or an untied LM head: ``python train.py [-m] key=value ...``."""

import sys
from pathlib import Path

from tielab.start import main

# Hydra's own shell completion takes a script for one of its own if it reads "@hydra.main" in it.
if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent / "conf"))
