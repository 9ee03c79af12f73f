"""A directory in memory that dies at a chosen operation, with the process or with the power."""

from dataclasses import dataclass, field

__all__ = ["Died", "DyingDisk"]


class Died(BaseException):
    """The process is gone; no `except Exception` holds it up."""


@dataclass
class Inode:
    """A file's contents: what is there, and what would survive a power cut."""

    data: bytes = b""
    synced: bytes = b""


@dataclass
class DyingDisk:
    """`Disk`; `left` operations that change something are done, the next one half."""

    left: int = 10**9
    names_: dict[str, Inode] = field(default_factory=dict)
    synced_names: dict[str, Inode] = field(default_factory=dict)
    operations: int = 0

    def names(self):
        return sorted(self.names_)

    def read(self, name):
        return self._of(name).data

    def read_parts(self, name):
        data = self._of(name).data
        return (data[at : at + 40] for at in range(0, len(data), 40))

    def size(self, name):
        return len(self._of(name).data)

    def append(self, name, data):
        inode = self.names_.setdefault(name, Inode())
        if self._last():
            inode.data += data[: len(data) // 2]
            raise Died
        inode.data += data

    def truncate(self, name, size):
        self._work()
        inode = self._of(name)
        inode.data = inode.data[:size]

    def sync(self, name):
        self._work()
        inode = self._of(name)
        inode.synced = inode.data

    def rename(self, name, to):
        self._work()
        self.names_[to] = self.names_.pop(name)

    def remove(self, name):
        self._work()
        del self.names_[name]

    def sync_names(self):
        self._work()
        self.synced_names = dict(self.names_)

    def after_death(self, power, kept):
        """What the next process finds: all, or with the power gone what was synced and some of the rest.

        `kept` chooses: of each byte of an unsynced tail, and of the names since they were synced.
        """
        if not power:
            return DyingDisk(names_=self.names_, synced_names=self.synced_names)
        names = dict(self.names_ if kept % 2 else self.synced_names)
        if kept % 4 == 2:  # names that changed hands came through, new ones did not
            names |= {name: inode for name, inode in self.names_.items() if name in names}
        for inode in {id(one): one for one in (*names.values(), *self.synced_names.values())}.values():
            if inode.data.startswith(inode.synced):
                more = (len(inode.data) - len(inode.synced)) * (kept % 5) // 4
                inode.data = inode.data[: len(inode.synced) + more]
            elif kept % 3:
                inode.data = inode.synced  # a cut that was not synced did not happen
            inode.synced = inode.data
        return DyingDisk(names_=names, synced_names=dict(names))

    def _of(self, name):
        try:
            return self.names_[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def _last(self):
        self.operations += 1
        self.left -= 1
        return self.left < 0

    def _work(self):
        if self._last():
            raise Died
