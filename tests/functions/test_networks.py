"""Functions of neural networks give what numpy or torch gives, whatever the arrays' layouts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import morello
from morello.errors import ArgumentError

from .test_functions import PLAIN, laid_out, values


def test_placeholder():
    pass
