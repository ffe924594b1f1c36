"""Values as small integers: what events and predicates become, and back."""
