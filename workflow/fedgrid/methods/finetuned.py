"""Fine-tuning: a client is evaluated after more SGD on its own data, which it then forgets.

It begins with the model that the client would use: the server's, or with another method the one
that the client begins with. Combined with `fedavg` it is the usual baseline of personalisation, and
with `fedbabu` the evaluation of the FedBABU paper (Oh, Kim and Yun, ICLR 2022), which calls it
FedAvg and FedBABU with fine-tuning.

Each epoch has the same batches of the client, with the protocol's augmentation. The steps are
plain SGD, without momentum and weight decay, on the cross-entropy in training mode. BatchNorm's
running statistics stay as they are.
"""

from fedgrid.method import Client, Method, Model

RANGES = {"epochs": "[0, inf)", "part": ("all", "head", "body"), "rate": "[0, inf)"}
PRIVATE = True


def method(epochs: int = 5, part: str = "all", rate: float = 0.0) -> Method:
    """epochs: 0 changes nothing; part: of the model; rate: of SGD, 0: the round's own."""
    names = {"all": "", "head": "head.", "body": "body."}

    def tune(client: Client) -> Model:
        model, lr = client.model, rate or client.lr
        for _ in range(epochs):
            for x, y in client.epoch():
                gradient = client.gradient(model, x, y)
                chosen = [n for n in gradient if n.removeprefix("private.").startswith(names[part])]
                model = model | {n: model[n] - lr * gradient[n] for n in chosen}
        return model

    return Method(personal=tune)
