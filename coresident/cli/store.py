"""``coresident store``: signed models that are verified to the last byte, and which of them runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import attrs
import typer

from ..actors.errors import ArtifactInvalid
from ..runtime.store.keys import PublicKey, generate, load_private, load_public, load_trusted, save, save_public
from ..runtime.store.manifest import ANY, FILE_NAME, sign
from ..runtime.store.newfile import write_new
from ..runtime.store.places import VARIABLE, default_key, default_store, default_trusted
from ..runtime.store.seed import read_manifest
from ..runtime.store.signing import describe, files_of, left_out
from ..runtime.store.store import Store
from . import options
from .failures import FAULT, HELP
from .store_named import count_of, is_about_trust, manifest_named, recorded, repeated, restored, resumable, sourced
from .store_show import SHOWN, Checked, bar, show_checked, show_status
from .wording import print_json, size

Folder = Annotated[
    Path | None,
    typer.Option("--store", metavar="PATH", help=f"The store; else ${VARIABLE}, else in the user's data folder."),
]
Trust = Annotated[
    list[Path] | None,
    typer.Option("--trust", metavar="KEY.pub", help="Trust these keys, not those in the user's folder of them."),
]
Device = Annotated[str, typer.Option(metavar="NAME", help="The device, or 'any'.")]
KeyFile = Annotated[Path | None, typer.Option("--key", metavar="KEY", help="The private key; else the user's own.")]

app = typer.Typer(
    help="Keep models that are what somebody signed: stage, activate, verify and repair them.",
    epilog=HELP,
    no_args_is_help=True,
)


@app.command(epilog=HELP)
def keygen(
    key: Annotated[Path | None, typer.Argument(metavar="[KEY]", help="The file to write; else the user's own.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Also trust it on this machine, for this user.")] = False,
) -> None:
    """Make a key that signs models: KEY for you alone, and KEY.pub to give away."""
    path = key or default_key()
    made = generate()
    public = save(made, path)
    typer.echo(f"Private key: {path}; whoever has it can sign as you.")
    typer.echo(f"Public key:  {public}, id {made.public.key_id}.")
    if trust:
        trusted = default_trusted() / f"{made.public.key_id[:16]}.pub"
        save_public(made.public, trusted)
        typer.echo(f"Trusted here: {trusted}.")
    else:
        typer.echo(f"To trust what it signs: --trust {public}, or put that file into {default_trusted()}.")


@app.command("sign", epilog=HELP)
def sign_(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The name that the model is asked for by.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Its files, or the folder that has them.")],
    key: KeyFile = None,
    out: Annotated[
        Path | None, typer.Option(metavar="OUT", help=f"What to write; else {FILE_NAME} in the folder, or here.")
    ] = None,
    device: Device = ANY,
    created_by: Annotated[str, typer.Option(metavar="WHO", help="Who made it, for people.")] = "",
    notes: Annotated[str, typer.Option(metavar="TEXT", help="Words about it, for people.")] = "",
) -> None:
    """Read a model's files and sign their names, digests and sizes."""
    target = out or (files[0] / FILE_NAME if len(files) == 1 and files[0].is_dir() else Path(FILE_NAME))
    signer = load_private(key or default_key())
    found = files_of(files)
    with bar("reading", sum(file.stat().st_size for file in found)) as progress:
        manifest = describe(model, found, device, created_by, notes, progress)
    signed = sign(manifest, signer)
    write_new(target, signed.text(), advice="name another file with --out")
    for folder in left_out(files):
        typer.echo(f"Left out: {folder}; a model's files are in one folder.")
    typer.echo(f"{target}: {_about(model, len(found), manifest.size)}, signed by {signed.key[:16]}.")
    typer.echo(f"Manifest {signed.digest}")


@app.command(epilog=HELP)
def stage(
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="A signed manifest, or the folder that has it.")],
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Where its files are; else beside the manifest.")
    ] = None,
    store: Folder = None,
    trust: Trust = None,
) -> None:
    """Copy a signed model into the store. A copy that was cut short goes on where it stopped."""
    chosen = _store(store, trust)
    signed = read_manifest(manifest)
    signed.check(chosen.trusted, str(manifest))
    folder = source or (manifest if manifest.is_dir() else manifest.parent)
    with resumable(), chosen.held(signed.digest, create=True), bar("staging", signed.manifest.size) as progress:
        selection = chosen.add_manifest(signed.text(), str(manifest))
        copied = chosen.stage(selection, folder, progress)
    there = len(selection.files) - len(copied)
    about = _about(selection.model, len(selection.files), selection.size)
    typer.echo(f"{about}: {len(copied)} copied, {there} there already.")
    typer.echo(f"To run it from now on: coresident store activate {selection.manifest[:SHOWN]}{repeated(store, trust)}")


@app.command(epilog=HELP)
def activate(
    manifest: Annotated[
        str,
        typer.Argument(
            metavar="MANIFEST",
            help="A manifest in the store: the beginning of its digest, its file, or its model when there is only one.",
        ),
    ],
    device: Annotated[str | None, typer.Option(metavar="NAME", help="The device; else as signed.")] = None,
    store: Folder = None,
    trust: Trust = None,
) -> None:
    """Let a model run from a manifest from now on, when it is signed by a trusted key and every byte is right."""
    chosen = _store(store, trust)
    selection = chosen.selection(manifest_named(chosen, manifest))
    with bar("verifying", selection.size) as progress:
        active = chosen.activate(selection.manifest, device, progress)
    typer.echo(
        f"{active.model} on device {active.device} runs from manifest {active.manifest} (record {active.sequence})."
    )


@app.command(epilog=HELP)
def deactivate(
    model: Annotated[str, typer.Argument(metavar="MODEL")], device: Device = ANY, store: Folder = None
) -> None:
    """Select nothing for a model from now on. Its files stay until 'gc'."""
    record = _store(store, None, keys=False).deactivate(model, device)
    typer.echo(f"Nothing is selected for {model} on device {device} (record {record.sequence}).")


@app.command(epilog=HELP)
def verify(
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Else all that are selected.")] = None,
    device: Device = ANY,
    store: Folder = None,
    trust: Trust = None,
    as_json: options.AsJson = False,
) -> None:
    """Check signatures and read every byte of what is selected. Ends with 1 when something is not what was signed."""
    chosen = _store(store, trust)
    names = [(one.model, one.device) for one in chosen.status().selections if one.manifest is not None]
    if model is not None:
        recorded(chosen, model, device)
        names = [(model, device)]
    checked = [_check(chosen, *name) for name in names]
    if as_json:
        whole = all(one.whole for one in checked)
        print_json({"store": str(chosen.folder), "whole": whole, "selections": [one.as_json() for one in checked]})
    else:
        show_checked(str(chosen.folder), checked, repeated(store, trust))
    if not all(one.whole for one in checked):
        raise typer.Exit(FAULT)


@app.command(epilog=HELP)
def repair(
    model: Annotated[str, typer.Argument(metavar="MODEL")],
    device: Device = ANY,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Where good files are: a seed, or another store.")
    ] = None,
    store: Folder = None,
    trust: Trust = None,
) -> None:
    """Read every byte of a model, and replace what is missing or damaged. Without --from it says what that is."""
    chosen = _store(store, trust)
    manifest = recorded(chosen, model, device)
    with resumable(), sourced(source):
        selection = restored(chosen, manifest, source)
        with bar("repairing", selection.size) as progress:
            replaced = chosen.repair(selection, source, progress)
    for entry in selection.files:
        if entry.digest in replaced:
            typer.echo(f"Replaced {entry.name} ({size(entry.size)}).")
    typer.echo(f"{_about(model, len(selection.files), selection.size)}: every byte is what was signed.")


@app.command(epilog=HELP)
def gc(store: Folder = None) -> None:
    """Delete what no selection needs and nobody is running; so, too, what was staged and not activated."""
    done = _store(store, None, keys=False).gc()
    typer.echo(
        f"Deleted manifests: {len(done.manifests)}; artifacts: {len(done.artifacts)}, {size(done.bytes)}; unfinished "
        f"copies: {len(done.partials)}; stale leases: {done.leases}."
    )
    if done.used:
        typer.echo(f"Kept, because in use: {count_of(len(done.used), 'model')} that nothing selects.")


@app.command("list", epilog=HELP)
def list_(store: Folder = None, as_json: options.AsJson = False) -> None:
    """Show what is selected and what is in the store. Nothing is verified."""
    status = Store(store or default_store()).status()
    if as_json:
        print_json(attrs.asdict(status))
    else:
        show_status(status)


def _store(folder: Path | None, trust: list[Path] | None, keys: bool = True) -> Store:
    """The store that is meant, and the keys that count."""
    trusted: tuple[PublicKey, ...] = ()
    if keys:
        trusted = tuple(load_public(path) for path in trust) if trust else load_trusted(default_trusted())
    return Store(folder or default_store(), trusted)


def _check(store: Store, model: str, device: str) -> Checked:
    manifest = recorded(store, model, device)
    try:
        selection = store.selected(model, device)
    except ArtifactInvalid as error:
        return Checked(model, device, manifest, "", error.message, untrusted=is_about_trust(error))
    if selection is None:
        return Checked(model, device, manifest, "", "it was deselected meanwhile")
    with bar(f"verifying {model}", selection.size) as progress:
        return Checked(model, device, manifest, selection.key, "", store.verify(selection, progress))


def _about(model: str, files: int, count: int) -> str:
    return f"{model}, {count_of(files, 'file')}, {size(count)}"
