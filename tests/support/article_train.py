"""A train.py for run_cluster in the way of article 002: TensorFlow's parameter servers under compat.v1, a Supervisor,
MNIST's files. Its settings are variables: MNIST (a folder), LOG_DIR, EPOCHS, LEARNING_RATE."""

import gzip
import os
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

BATCH = 100
HIDDEN = 100
CLASSES = 10


def read_idx(name):
    """MNIST's format: a big-endian header with the number of dimensions, then the bytes."""
    content = gzip.decompress((Path(os.environ["MNIST"]) / f"{name}.gz").read_bytes())
    shape = np.frombuffer(content, ">i4", content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def load(part):
    images = read_idx(f"{part}-images-idx3-ubyte").reshape(-1, 28 * 28).astype(np.float32) / 255
    return images, np.eye(CLASSES, dtype=np.float32)[read_idx(f"{part}-labels-idx1-ubyte")]


def model(images, labels):
    hidden = tf.get_variable("hidden", [28 * 28, HIDDEN], initializer=tf.glorot_uniform_initializer())
    hidden_bias = tf.get_variable("hidden_bias", [HIDDEN], initializer=tf.zeros_initializer())
    out = tf.get_variable("out", [HIDDEN, CLASSES], initializer=tf.glorot_uniform_initializer())
    out_bias = tf.get_variable("out_bias", [CLASSES], initializer=tf.zeros_initializer())
    scores = tf.matmul(tf.nn.sigmoid(tf.matmul(images, hidden) + hidden_bias), out) + out_bias
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=scores))
    right = tf.equal(tf.argmax(scores, 1), tf.argmax(labels, 1))
    return loss, tf.reduce_mean(tf.cast(right, tf.float32))


def run(cluster, server, task_index):
    train_images, train_labels = load("train")
    test_images, test_labels = load("t10k")
    order = np.random.default_rng(task_index)
    with tf.Graph().as_default():
        worker = f"/job:worker/task:{task_index}"
        with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
            step = tf.train.get_or_create_global_step()
            images = tf.placeholder(tf.float32, [None, 28 * 28])
            labels = tf.placeholder(tf.float32, [None, CLASSES])
            loss, accuracy = model(images, labels)
            optimizer = tf.train.AdamOptimizer(float(os.environ.get("LEARNING_RATE", "0.0005")))
            update = optimizer.minimize(loss, global_step=step)
            summary = tf.summary.scalar("loss", loss)
            init = tf.global_variables_initializer()
        is_chief = task_index == 0
        supervisor = tf.train.Supervisor(
            is_chief=is_chief,
            logdir=os.environ["LOG_DIR"],
            init_op=init,
            global_step=step,
            summary_op=None,  # It needs a batch, which the Supervisor does not have.
            recovery_wait_secs=1,
        )
        with supervisor.prepare_or_wait_for_session(server.target) as session:
            mine = 0
            for _ in range(int(os.environ.get("EPOCHS", "20"))):
                for chosen in np.array_split(order.permutation(len(train_images)), len(train_images) // BATCH):
                    batch = {images: train_images[chosen], labels: train_labels[chosen]}
                    session.run(update, batch)
                    mine += 1
                if is_chief:
                    supervisor.summary_computed(session, session.run(summary, batch))
            total, reached = session.run([step, accuracy], {images: test_images, labels: test_labels})
            print(f"worker {task_index}: {mine} steps of {total}, accuracy {reached:.3f}")
        supervisor.stop()
