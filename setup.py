"""Builds a wheel of what is in the checkout, and of nothing else; everything that is said of it is in pyproject.toml.

Setuptools copies modules into a folder `build` of the checkout, makes the wheel of what is there, and leaves it there:
modules that were renamed or removed since came into the next wheel. So each build has a folder of its own.
"""

import tempfile

from setuptools import setup

with tempfile.TemporaryDirectory() as folder:
    # Named, or it would be taken for a module of the package, whose root is the checkout.
    setup(script_name="setup.py", options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}})
