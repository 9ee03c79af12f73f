"""The orchestrators, a file each: what makes one loop different from the others."""
