from tielab import MiniGPT, TextData, compare, train

data = TextData("wiki", vocab_size=1024, block_size=64, batch_size=8)
runs = []
for seed in (0, 1, 2):
    for tied in (True, False):
        model = MiniGPT(data.vocab_size, data.block_size, embed_dim=64, num_layers=2, tied=tied, seed=seed)
        runs.append(train(model, data, tokens=50_000))

print(compare(runs))
