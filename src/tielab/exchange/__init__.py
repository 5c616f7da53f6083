"""Models from and to other software: folders as Hugging Face's transformers reads and writes them."""
