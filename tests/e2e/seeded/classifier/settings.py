from dataclasses import dataclass, field


@dataclass
class Optimisation:
    rate: float = 0.05
    decay: float = 0.01
    accumulate: int = 2
    largest_norm: float = 0.5
    warm: int = 3


@dataclass
class Settings:
    classes: int = 4
    width: int = 8
    smoothing: float = 0.1
    average: float = 0.9
    optimisation: Optimisation = field(default_factory=Optimisation)
