"""How fast is it, and how far from what the machine can do? The programs behind `mbpo bench`."""
