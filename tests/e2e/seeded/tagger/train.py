from loop import Trainer


def main():
    trainer = Trainer(seed=3)
    for step in range(4):
        loss = trainer.update()
        trainer.remember()
        if step % 2:
            print(step, f"{trainer.evaluate():.6f}")
    print(f"{loss.item():.6f}")


if __name__ == "__main__":
    main()
