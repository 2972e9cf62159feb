"""A training whose own code is only a call of a library's trainer."""

import argparse

from small_trainer import Trainer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2)
    trainer = Trainer(6, seed=1)
    trainer.train(parser.parse_args().steps)


if __name__ == "__main__":
    main()
