import torch
import torch.nn.functional as F
from network import Average, Network, parameter_groups
from settings import Settings


def batches(count, generator):
    for _ in range(count):
        images = torch.randn(8, 3, 6, 6, generator=generator)
        labels = (images.mean(dim=(1, 2, 3)) * 20).long().abs() % 4
        yield images, labels


def fit(settings, epochs=2):
    torch.manual_seed(7)
    optimisation = settings.optimisation
    model = Network(settings)
    average = Average(model, settings.average)
    groups = parameter_groups(model, optimisation.decay)
    optimizer = torch.optim.SGD(groups, lr=optimisation.rate, momentum=0.9, nesterov=True)
    warm = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min(1.0, (done + 1) / optimisation.warm)
    )
    generator = torch.Generator().manual_seed(3)
    for epoch in range(epochs):
        model.train()
        for index, (images, labels) in enumerate(batches(4, generator)):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(images)
            loss = F.cross_entropy(logits.float(), labels, label_smoothing=settings.smoothing)
            (loss / optimisation.accumulate).backward()
            if (index + 1) % optimisation.accumulate == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), optimisation.largest_norm)
                optimizer.step()
                warm.step()
                average.update(model)
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            images, labels = next(batches(1, generator))
            accuracy = (model(images).argmax(dim=1) == labels).float().mean()
        print(f"{epoch} {loss.item():.4f} {accuracy:.3f}")


if __name__ == "__main__":
    fit(Settings())
