"""Silent bugs and harmless changes that are put into the programs of `tests/e2e/seeded`.

Each bug stands for a kind and for the rule that finds it. The programs differ in shape: a
convolutional autoencoder with a loader, a recurrent tagger inside a trainer class, and a mixture of
experts on plain tensors with a hand-written update; a residual classifier with accumulation, weight
average and autocast, a packed recurrent language model with tied weights, and a decoder with shared
heads and recomputed layers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """Replace ``old``, which occurs once, by ``new`` in a file of the candidate."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """A program, what is changed in it, and the lines that count as found.

    Attributes:
        accepted: ``(side, file, text)``: the line on that side that holds the text.
    """

    program: str
    edits: tuple[Edit, ...]
    accepted: tuple[tuple[str, str, str], ...]


BUGS = {
    "a hidden setting of a layer": Bug(
        "autoencoder",
        (Edit("net.py", "eps=1e-5", "eps=1e-3"),),
        (("baseline", "net.py", "self.norm(self.conv"),),
    ),
    "an in-place operation on a shared tensor": Bug(
        "autoencoder",
        (
            Edit(
                "train.py",
                "image + 0.1 * torch.randn_like(image)",
                "image.add_(0.1 * torch.randn_like(image))",
            ),
        ),
        (("candidate", "train.py", "image.add_("), ("baseline", "train.py", "mse_loss(")),
    ),
    "the order of the data": Bug(
        "autoencoder",
        (Edit("images.py", "manual_seed(seed)", "manual_seed(seed + 1)"),),
        (
            ("baseline", "train.py", "in batches(seed=epoch)"),
            ("candidate", "images.py", "manual_seed(seed + 1)"),
            ("baseline", "images.py", "self.images[index]"),
        ),
    ),
    "clipping after the step": Bug(
        "autoencoder",
        (
            Edit(
                "train.py",
                "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)\n"
                "        optimizer.step()\n",
                "        optimizer.step()\n"
                "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)\n",
            ),
        ),
        (("baseline", "train.py", "clip_grad_norm_"), ("baseline", "train.py", "optimizer.step()")),
    ),
    "a learning rate that Python state decides": Bug(
        "autoencoder",
        (Edit("train.py", "gamma=0.5", "gamma=0.25"),),
        (("baseline", "train.py", "optimizer.step()"), ("baseline", "train.py", "schedule.step()")),
    ),
    "a model left in evaluation mode": Bug(
        "tagger",
        (Edit("loop.py", "        self.model.train()\n", ""),),
        (
            ("baseline", "loop.py", "self.model.train()"),
            ("baseline", "tagger.py", "self.drop(states)"),
            ("baseline", "loop.py", "loss_of(self.model(words), tags)\n        self.optimizer"),
        ),
    ),
    "padding that takes part in attention": Bug(
        "tagger",
        (Edit("tagger.py", "        scores = scores.masked_fill(~keep[:, None, :], -1e9)\n", ""),),
        (
            ("baseline", "tagger.py", "masked_fill"),
            ("candidate", "tagger.py", "F.softmax(scores"),
        ),
    ),
    "a scale by the wrong width": Bug(
        "tagger",
        (Edit("tagger.py", "math.sqrt(self.width)", "math.sqrt(2 * self.width)"),),
        (("candidate", "tagger.py", "math.sqrt(2"),),
    ),
    "another optimizer setting": Bug(
        "tagger",
        (Edit("loop.py", "betas=(0.9, 0.99)", "betas=(0.9, 0.999)"),),
        (("baseline", "loop.py", "self.optimizer.step()"), ("baseline", "loop.py", "betas=")),
    ),
    "a gradient cut off": Bug(
        "tagger",
        (
            Edit(
                "tagger.py", "states + self.attend(states,", "states + self.attend(states.detach(),"
            ),
        ),
        (("candidate", "tagger.py", "states.detach()"),),
    ),
    "gradients that add up": Bug(
        "tagger",
        (Edit("loop.py", "        self.optimizer.zero_grad(set_to_none=True)\n", ""),),
        (
            ("baseline", "loop.py", "zero_grad"),
            ("candidate", "loop.py", "loss.backward()"),
        ),
    ),
    "an extra draw from the random stream": Bug(
        "tagger",
        (
            Edit(
                "loop.py",
                "        return words, tags\n",
                "        torch.rand(1)\n        return words, tags\n",
            ),
        ),
        (("candidate", "loop.py", "torch.rand(1)"),),
    ),
    "an argument with another default": Bug(
        "mixture",
        (Edit("layers.py", "temperature=1.0", "temperature=0.5"),),
        (("candidate", "layers.py", "logits / temperature"),),
    ),
    "a reduction over the wrong dimension": Bug(
        "mixture",
        (Edit("layers.py", ".softmax(-1)", ".softmax(0)"),),
        (("candidate", "layers.py", ".softmax(0)"),),
    ),
    "a parameter that is not updated": Bug(
        "mixture",
        (
            Edit(
                "train.py",
                "            value.sub_(momentum[name], alpha=0.05)\n",
                '            if name != "b":\n'
                "                value.sub_(momentum[name], alpha=0.05)\n",
            ),
        ),
        (
            ("baseline", "train.py", "value.sub_("),
            ("candidate", "train.py", "value.sub_("),
            ("baseline", "layers.py", "torch.tanh(x @ weight + bias)"),
            ("baseline", "layers.py", "expert(x, params"),
        ),
    ),
    "a lower precision on the way": Bug(
        "mixture",
        (Edit("layers.py", "(x @ weight + bias)", "((x @ weight).bfloat16().float() + bias)"),),
        (("candidate", "layers.py", "bfloat16"),),
    ),
    "a moving average of another momentum": Bug(
        "classifier",
        (Edit("network.py", "momentum=0.1", "momentum=0.9"),),
        (("baseline", "network.py", "self.norms[0](self.first"),),
    ),
    "a loss that is not divided by the number of batches": Bug(
        "classifier",
        (Edit("train.py", "(loss / optimisation.accumulate).backward()", "loss.backward()"),),
        (
            ("baseline", "train.py", "(loss / optimisation"),
            ("candidate", "train.py", "loss.backward()"),
        ),
    ),
    "weights averaged before the step": Bug(
        "classifier",
        (
            Edit(
                "train.py",
                "                optimizer.step()\n"
                "                warm.step()\n"
                "                average.update(model)\n",
                "                average.update(model)\n"
                "                optimizer.step()\n"
                "                warm.step()\n",
            ),
        ),
        (
            ("baseline", "network.py", "mine.lerp_("),
            ("baseline", "train.py", "average.update(model)"),
        ),
    ),
    "a schedule before the step": Bug(
        "classifier",
        (
            Edit(
                "train.py",
                "                optimizer.step()\n                warm.step()\n",
                "                warm.step()\n                optimizer.step()\n",
            ),
        ),
        (
            ("baseline", "train.py", "optimizer.step()"),
            ("baseline", "train.py", "warm.step()"),
        ),
    ),
    "weight decay on every parameter": Bug(
        "classifier",
        (Edit("network.py", '"weight_decay": 0.0', '"weight_decay": decay'),),
        (("baseline", "train.py", "optimizer.step()"),),
    ),
    "clipping by another norm": Bug(
        "classifier",
        (
            Edit(
                "train.py",
                "optimisation.largest_norm)",
                "optimisation.largest_norm, norm_type=float('inf'))",
            ),
        ),
        (("baseline", "train.py", "clip_grad_norm_"),),
    ),
    "a dropout rate in a configuration": Bug(
        "language",
        (Edit("model.py", '"drop": 0.2', '"drop": 0.1'),),
        (("baseline", "model.py", "self.drop(self.embed(tokens))"),),
    ),
    "weights that are no longer tied": Bug(
        "language",
        (Edit("model.py", "        self.project.weight = self.embed.weight\n", ""),),
        (("baseline", "model.py", "self.project.weight = self.embed.weight"),),
    ),
    "a gradient that is no longer cut off": Bug(
        "language",
        (Edit("model.py", "summary.detach()", "summary"),),
        (("baseline", "model.py", "summary.detach()"),),
    ),
    "a target that is not shifted": Bug(
        "language",
        (Edit("train.py", "loss_of(logits, tokens[:, 1:]", "loss_of(logits, tokens[:, :-1]"),),
        (("candidate", "train.py", "loss_of(logits, tokens"),),
    ),
    "heads repeated in another order": Bug(
        "decoder",
        (
            Edit(
                "parts.py",
                "k = k.transpose(1, 2).repeat_interleave(times, dim=1)",
                "k = k.transpose(1, 2).repeat(1, times, 1, 1)",
            ),
        ),
        (("candidate", "parts.py", ".repeat(1, times"),),
    ),
    "masking after the softmax": Bug(
        "decoder",
        (
            Edit(
                "parts.py",
                '        scores = scores.masked_fill(mask, float("-inf"))\n'
                "        weights = F.softmax(scores, dim=-1)\n",
                "        weights = F.softmax(scores, dim=-1)\n"
                "        weights = weights.masked_fill(mask, 0.0)\n",
            ),
        ),
        (
            ("baseline", "parts.py", "scores.masked_fill"),
            ("candidate", "parts.py", "weights.masked_fill"),
            ("candidate", "parts.py", "F.softmax"),
        ),
    ),
}

HARMLESS = {
    "a refactoring that keeps the operations": Bug(
        "language",
        (
            Edit(
                "train.py",
                "        self.optimizer.zero_grad()\n        loss.backward()\n",
                "        self.learn(loss)\n"
                "        self.losses.append(loss.detach())\n\n"
                "    def learn(self, loss):\n"
                "        self.optimizer.zero_grad()\n        loss.backward()\n",
            ),
            Edit(
                "train.py",
                "        self.cosine.step()\n        self.losses.append(loss.detach())\n",
                "        self.cosine.step()\n",
            ),
        ),
        (),
    ),
    "an expression in two statements": Bug(
        "decoder",
        (
            Edit(
                "parts.py",
                "        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))",
                "        together = mixed.transpose(1, 2)\n"
                "        return self.out(together.reshape(batch, length, -1))",
            ),
        ),
        (),
    ),
    "logging and comments": Bug(
        "tagger",
        (
            Edit(
                "loop.py",
                "        return loss\n",
                "        print(float(loss))\n        return loss\n",
            ),
            Edit(
                "tagger.py",
                "        keep = words != 0\n",
                "        # Words, not padding.\n        keep = words != 0\n",
            ),
        ),
        (),
    ),
    "renamed variables and a moved function": Bug(
        "tagger",
        (
            Edit(
                "tagger.py",
                "\n\ndef loss_of(logits, tags):\n    return F.cross_entropy("
                "logits.flatten(0, 1), tags.flatten(), ignore_index=-1)\n",
                "\n",
            ),
            Edit(
                "loop.py",
                "from tagger import Tagger, loss_of\n",
                "import torch.nn.functional as F\n"
                "from tagger import Tagger\n\n\ndef loss_of(scores, labels):\n"
                "    return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), "
                "ignore_index=-1)\n",
            ),
        ),
        (),
    ),
    "an expression moved into a helper": Bug(
        "mixture",
        (
            Edit(
                "train.py",
                "def penalty(params):\n    return sum(value.pow(2).sum() for value in "
                "params.values()) * 1e-3\n",
                "def squares(value):\n    return value.pow(2).sum()\n\n\ndef penalty(params):\n"
                "    return sum(squares(value) for value in params.values()) * 1e-3\n",
            ),
        ),
        (),
    ),
}
