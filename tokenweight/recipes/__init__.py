"""The experiments' recipes. `load` gives one by name, scale and a user's inputs."""

from tokenweight.recipes.inputs import Inputs as Inputs
from tokenweight.recipes.inputs import load as load
from tokenweight.recipes.inputs import load_all as load_all
from tokenweight.recipes.recipe import names as names
from tokenweight.recipes.schema import SCALES as SCALES
