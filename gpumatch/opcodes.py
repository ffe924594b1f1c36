"""Numbers that stand for kinds of predicates and for operators, on the way from text to kernels. Imports nothing."""

from __future__ import annotations

RANGE = 0  # lo <= key <= hi
SET = 1  # the key lies in one of ranges[lo:hi]
ANY = 2  # one of the values of a multi-valued attribute lies in ranges[lo:hi]
NONE = 3  # no value does; true of a missing attribute, so that a presence test goes with it
NULL = 4  # the attribute is missing

WIDTH = 4  # numbers per predicate in kernels: the attribute, then at these offsets
KIND, LO, HI = 1, 2, 3

OP_NOT, OP_AND, OP_OR, OP_XOR, OP_XNOR, OP_TRUE, OP_FALSE = 0, 1, 2, 3, 4, 5, 6
OP_BASE = 8  # a program item below zero is -(1 + op + OP_BASE * arity)

# What the number of an entry of a single event is: its key, a float, one to be rounded, or where a text ends.
NUMBER, DOUBLE, FLOAT32, TEXT = 0, 1, 2, 3
