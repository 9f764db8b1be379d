"""What all models of settings are: immutable, strict about keys, and true is no number."""

from pydantic import BaseModel, ConfigDict, model_validator


class Frozen(BaseModel):
    """A record of values: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, values: object) -> object:
        """For pydantic true is 1, so that `training.steps=true` would train one step."""
        if isinstance(values, dict):
            for name, field in cls.model_fields.items():
                if isinstance(values.get(name), bool) and "bool" not in str(field.annotation):
                    raise ValueError(f"{name} takes no {str(values[name]).lower()}")
        return values
