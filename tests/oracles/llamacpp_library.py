"""llama.cpp through its C interface: just enough to tokenize and to decode greedily.

The library folder is the one of a prebuilt distribution, e.g. ``bins/linux-x64`` in the npm package
``@node-llama-cpp/linux-x64`` (``npm pack @node-llama-cpp/linux-x64`` and unpack the archive).

Parameter structs are passed as opaque bytes: on x86-64 and arm64 Linux a struct above 16 bytes is returned
through a hidden pointer, and by-value arguments are read from the front of a copy, so a buffer longer than
the struct is enough. The one field written is ``vocab_only``, at its place in ``llama_model_params`` of
release v0.5.0 (include/llama.h).
"""

from __future__ import annotations

import ctypes
import glob
import os

VOCAB_ONLY_OFFSET = 72


class Opaque(ctypes.Structure):
    _fields_ = (("raw", ctypes.c_uint8 * 1024),)


class Llama:
    """One loaded library; models are opaque pointers."""

    def __init__(self, folder: str) -> None:
        for stem in ("libggml-base", "libggml.v", "libggml.so", "libllama.v", "libllama.so"):
            for path in sorted(glob.glob(os.path.join(folder, f"{stem}*"))):
                library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                if "libggml." in path:
                    library.ggml_backend_load_all_from_path(folder.encode())
                self.c = library
        self.log_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
            lambda level, text, data: None
        )
        self.c.llama_log_set(self.log_callback, None)
        self.c.llama_backend_init()
        for name in ("llama_model_default_params", "llama_context_default_params", "llama_batch_get_one"):
            getattr(self.c, name).restype = Opaque
        for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_model_get_vocab"):
            getattr(self.c, name).restype = ctypes.c_void_p
        self.c.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
        self.c.llama_vocab_is_eog.restype = ctypes.c_bool

    def load(self, path: str, *, vocab_only: bool) -> ctypes.c_void_p:
        parameters = self.c.llama_model_default_params()
        if vocab_only:
            parameters.raw[VOCAB_ONLY_OFFSET] = 1
        model = self.c.llama_model_load_from_file(path.encode(), parameters)
        if not model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        return ctypes.c_void_p(model)

    def vocab(self, model: ctypes.c_void_p) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.c.llama_model_get_vocab(model))

    def tokenize(
        self, vocab: ctypes.c_void_p, text: str, *, parse_special: bool, add_special: bool = False
    ) -> list[int]:
        raw = text.encode()
        room = len(raw) + 8
        out = (ctypes.c_int32 * room)()
        count = self.c.llama_tokenize(
            vocab, raw, len(raw), out, room, ctypes.c_bool(add_special), ctypes.c_bool(parse_special)
        )
        if count < 0:
            raise SystemExit(f"llama_tokenize asks for {-count} tokens of room for {text!r}")
        return list(out[:count])

    def stop_tokens(self, vocab: ctypes.c_void_p) -> list[int]:
        return [i for i in range(self.c.llama_vocab_n_tokens(vocab)) if self.c.llama_vocab_is_eog(vocab, i)]

    def greedy(self, model: ctypes.c_void_p, prompt: list[int], count: int) -> tuple[list[int], list[float]]:
        """Greedy tokens (the first maximum wins) and, for each, its lead over the second best logit."""
        context = ctypes.c_void_p(self.c.llama_init_from_model(model, self.c.llama_context_default_params()))
        if not context:
            raise SystemExit("llama.cpp cannot make a context")
        self.c.llama_set_n_threads(context, 1, 1)
        width = self.c.llama_vocab_n_tokens(self.vocab(model))
        feed, tokens, leads = list(prompt), [], []
        for _ in range(count):
            held = (ctypes.c_int32 * len(feed))(*feed)
            if self.c.llama_decode(context, self.c.llama_batch_get_one(held, len(feed))):
                raise SystemExit("llama_decode failed")
            logits = self.c.llama_get_logits_ith(context, -1)[:width]
            best = max(range(width), key=logits.__getitem__)
            leads.append(round(logits[best] - max(v for i, v in enumerate(logits) if i != best), 5))
            tokens.append(best)
            feed = [best]
        self.c.llama_free(context)
        return tokens, leads
