"""How the scripts take options, measure, and tell and draw what they found."""
