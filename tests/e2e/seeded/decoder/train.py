import torch
import torch.nn.functional as F
from net import Decoder


def text(generator, rows=4, length=10):
    start = torch.randint(0, 19, (rows, 1), generator=generator)
    return (start + torch.arange(length) * 3) % 19


def token_loss(logits, tokens):
    scores = F.log_softmax(logits[:, :-1], dim=-1)
    picked = scores.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return -picked.mean(), logits.logsumexp(-1).pow(2).mean()


def main():
    torch.manual_seed(21)
    generator = torch.Generator().manual_seed(4)
    model = Decoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    smoothed = None
    for step in range(4):
        tokens = text(generator)
        loss, extra = token_loss(model(tokens), tokens)
        total = loss + 1e-4 * extra
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        value = loss.item()
        smoothed = value if smoothed is None else 0.9 * smoothed + 0.1 * value
        print(step, f"{smoothed:.4f} {norm:.3f}")


main()
