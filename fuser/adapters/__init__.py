"""Ways into the compiler from torch: what each of them reads, and the table of ops they share."""
