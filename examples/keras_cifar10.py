"""Trains Keras's CIFAR-10 network on several ranks, as a script for Horovod does.

    gyre run -n 4 -- python examples/keras_cifar10.py --data-dir cifar-10

DIR holds CIFAR-10's binary batches (data_batch_1.bin …, test_batch.bin), in cifar-10-batches-bin or directly;
`python -m gyre.datasets digits` writes smaller ones. Alone it is a job of one rank. Needs Keras 3 and TensorFlow, or
torch with KERAS_BACKEND=torch.
"""

import argparse
from pathlib import Path

import gyre.keras as hvd
import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR")
parser.add_argument("--epochs", type=int, default=25)
parser.add_argument("--batch", type=int, default=32, help="images per rank and step")
parser.add_argument("--learning-rate", type=float, default=1e-4, help="of one rank; more ranks make larger steps")
parser.add_argument("--checkpoints", type=Path, metavar="DIR", help="where rank 0 keeps the best model")
arguments = parser.parse_args()


def read(folder: Path, pattern: str) -> tuple[np.ndarray, np.ndarray]:
    """Images from 0 to 1, rows first, and labels, of all files together. A record is a label and three planes."""
    inside = folder / "cifar-10-batches-bin"
    files = sorted((inside if inside.is_dir() else folder).glob(pattern))
    if not files:
        raise SystemExit(f"{folder} has no {pattern}: it does not hold CIFAR-10's binary batches")
    records = np.concatenate([np.fromfile(file, np.uint8) for file in files]).reshape(-1, 1 + 3 * 32 * 32)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images.astype(np.float32) / 255, keras.utils.to_categorical(records[:, 0], 10)


hvd.init()  # This process becomes a rank of the job.
rank, size = hvd.rank(), hvd.size()

x_train, y_train = (array[rank::size] for array in read(arguments.data_dir, "data_batch_*.bin"))
x_test, y_test = read(arguments.data_dir, "test_batch.bin")

layers = keras.layers
model = keras.Sequential(
    [
        keras.Input(x_train.shape[1:]),
        *(layers.Conv2D(32, 3, padding="same", activation="relu"), layers.Conv2D(32, 3, activation="relu")),
        *(layers.MaxPooling2D(), layers.Dropout(0.25)),
        *(layers.Conv2D(64, 3, padding="same", activation="relu"), layers.Conv2D(64, 3, activation="relu")),
        *(layers.MaxPooling2D(), layers.Dropout(0.25)),
        *(layers.Flatten(), layers.Dense(512, activation="relu"), layers.Dropout(0.5)),
        layers.Dense(10, activation="softmax"),
    ]
)

rate = arguments.learning_rate * size
optimizer = hvd.DistributedOptimizer(keras.optimizers.RMSprop(learning_rate=rate))
model.compile(loss="categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # All ranks begin with rank 0's weights.
    hvd.callbacks.MetricAverageCallback(),  # What the callbacks below see, and fit() shows, is about all ranks.
    hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=5),
    keras.callbacks.ReduceLROnPlateau(patience=10),
]
if arguments.checkpoints is not None and rank == 0:
    best = str(arguments.checkpoints / "best.keras")
    callbacks.append(keras.callbacks.ModelCheckpoint(best, monitor="val_accuracy", save_best_only=True))

# The ranks share the test images as well: the average of their metrics is over all of them.
model.fit(
    x_train,
    y_train,
    batch_size=arguments.batch,
    epochs=arguments.epochs,
    callbacks=callbacks,
    validation_data=(x_test[rank::size], y_test[rank::size]),
    verbose=2 if rank == 0 else 0,
)
loss, accuracy = hvd.allreduce(np.array(model.evaluate(x_test[rank::size], y_test[rank::size], verbose=0)))
if rank == 0:
    print(f"test loss {loss:.4f}, accuracy {accuracy:.4f} on {size} rank{'s' if size > 1 else ''}")
