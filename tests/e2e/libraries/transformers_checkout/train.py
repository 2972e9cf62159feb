"""Fine-tune a tiny random model with the Trainer, as its documentation shows."""

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed


class Sentences(Dataset):
    """Token sequences that follow a simple rule."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        tokens = (torch.arange(12) * (index % 5 + 1) + index) % 50
        return {"input_ids": tokens, "labels": tokens.clone()}


def main():
    set_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    model = LlamaForCausalLM(config)
    arguments = TrainingArguments(
        output_dir="trainer-output",
        per_device_train_batch_size=4,
        max_steps=2,
        learning_rate=1e-3,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Sentences())
    trainer.train()


if __name__ == "__main__":
    main()
