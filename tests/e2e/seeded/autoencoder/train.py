import torch
from images import batches
from net import Autoencoder

torch.manual_seed(0)
model = Autoencoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
for epoch in range(2):
    model.train()
    for image in batches(seed=epoch):
        noisy = image + 0.1 * torch.randn_like(image)
        restored = model(noisy)
        loss = torch.nn.functional.mse_loss(restored, image)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
    schedule.step()
print(f"{loss.item():.6f}")
