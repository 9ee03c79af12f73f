"""Reads links: the host and place that a browser resolves a text to, and all links within a text. Pure.

A link is read by the URL standard if other readers agree. If they do not (a backslash, a slash too few or too
many, two `@`, a space or a tab within, an encoded slash beside dots) it has no reading.

Links within a text are the parts that clients of mail and chat, Markdown and HTML make links of: anything
with a scheme and slashes, `//host`, `host.tld/path`, `mailto:` and its like, destinations of Markdown and
HTML. They are also found if written with entities, escapes, percent signs, or other letters that mean the
same.
"""

import html
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from toolgate_bus.ruling.conditions.addresses import canonical_address
from toolgate_bus.ruling.conditions.addresses import find_addresses as find_mailboxes
from toolgate_bus.ruling.conditions.hosts import canonical_host, is_address

_RESERVED: Final = "alt arpa corp example home internal invalid lan local localhost onion test"
_FILE_ENDINGS: Final = "cab cc md mk ml mov pl properties ps py rs sh so tf zip"
_DELEGATED: Final = """
aaa aarp abb abbott abbvie abc able abogado abudhabi ac academy accenture accountant accountants aco actor
ad ads adult ae aeg aero aetna af afl africa ag agakhan agency ai aig airbus airforce airtel akdn al alibaba
alipay allfinanz allstate ally alsace alstom am amazon americanexpress americanfamily amex amfam amica
amsterdam analytics android anquan anz ao aol apartments app apple aq aquarelle ar arab aramco archi army
arpa art arte as asda asia associates at athleta attorney au auction audi audible audio auspost author auto
autos aw aws ax axa az azure ba baby baidu banamex band bank bar barcelona barclaycard barclays barefoot
bargains baseball basketball bauhaus bayern bb bbc bbt bbva bcg bcn bd be beats beauty beer berlin best
bestbuy bet bf bg bh bharti bi bible bid bike bing bingo bio biz bj black blackfriday blockbuster blog
bloomberg blue bm bms bmw bn bnpparibas bo boats boehringer bofa bom bond boo book booking bosch bostik
boston bot boutique box br bradesco bridgestone broadway broker brother brussels bs bt build builders
business buy buzz bv bw by bz bzh ca cab cafe cal call calvinklein cam camera camp canon capetown capital
capitalone car caravan cards care career careers cars casa case cash casino cat catering catholic cba cbn
cbre cc cd center ceo cern cf cfa cfd cg ch chanel channel charity chase chat cheap chintai christmas chrome
church ci cipriani circle cisco citadel citi citic city ck cl claims cleaning click clinic clinique clothing
cloud club clubmed cm cn co coach codes coffee college cologne com commbank community company compare
computer comsec condos construction consulting contact contractors cooking cool coop corsica country coupon
coupons courses cpa cr credit creditcard creditunion cricket crown crs cruise cruises cu cuisinella cv cw cx
cy cymru cyou cz dad dance data date dating datsun day dclk dds de deal dealer deals degree delivery dell
deloitte delta democrat dental dentist desi design dev dhl diamonds diet digital direct directory discount
discover dish diy dj dk dm dnp do docs doctor dog domains dot download drive dtv dubai dupont durban dvag
dvr dz earth eat ec eco edeka edu education ee eg email emerck energy engineer engineering enterprises epson
equipment er ericsson erni es esq estate et eu eurovision eus events exchange expert exposed express
extraspace fage fail fairwinds faith family fan fans farm farmers fashion fast fedex feedback ferrari
ferrero fi fidelity fido film final finance financial fire firestone firmdale fish fishing fit fitness fj fk
flickr flights flir florist flowers fly fm fo foo food football ford forex forsale forum foundation fox fr
free fresenius frl frogans frontier ftr fujitsu fun fund furniture futbol fyi ga gal gallery gallo gallup
game games gap garden gay gb gbiz gd gdn ge gea gent genting george gf gg ggee gh gi gift gifts gives giving
gl glass gle global globo gm gmail gmbh gmo gmx gn godaddy gold goldpoint golf goodyear goog google gop got
gov gp gq gr grainger graphics gratis green gripe grocery group gs gt gu gucci guge guide guitars guru gw gy
hair hamburg hangout haus hbo hdfc hdfcbank health healthcare help helsinki here hermes hiphop hisamitsu
hitachi hiv hk hkt hm hn hockey holdings holiday homedepot homegoods homes homesense honda horse hospital
host hosting hot hotels hotmail house how hr hsbc ht hu hughes hyatt hyundai ibm icbc ice icu id ie ieee ifm
ikano il im imamat imdb immo immobilien in inc industries infiniti info ing ink institute insurance insure
int international intuit investments io ipiranga iq ir irish is ismaili ist istanbul it itau itv jaguar java
jcb je jeep jetzt jewelry jio jll jm jmp jnj jo jobs joburg jot joy jp jpmorgan jprs juegos juniper kaufen
kddi ke kerryhotels kerryproperties kfh kg kh ki kia kids kim kindle kitchen kiwi km kn koeln komatsu kosher
kp kpmg kpn kr krd kred kuokgroup kw ky kyoto kz la lacaixa lamborghini lamer land landrover lanxess lasalle
lat latino latrobe law lawyer lb lc lds lease leclerc lefrak legal lego lexus lgbt li lidl life
lifeinsurance lifestyle lighting like lilly limited limo lincoln link live living lk llc llp loan loans
locker locus lol london lotte lotto love lpl lplfinancial lr ls lt ltd ltda lu lundbeck luxe luxury lv ly ma
madrid maif maison makeup man management mango map market marketing markets marriott marshalls mattel mba mc
mckinsey md me med media meet melbourne meme memorial men menu merck merckmsd mg mh miami microsoft mil mini
mint mit mitsubishi mk ml mlb mls mm mma mn mo mobi mobile moda moe moi mom monash money monster mormon
mortgage moscow moto motorcycles mov movie mp mq mr ms msd mt mtn mtr mu museum music mv mw mx my mz na nab
nagoya name navy nba nc ne nec net netbank netflix network neustar new news next nextdirect nexus nf nfl ng
ngo nhk ni nico nike nikon ninja nissan nissay nl no nokia norton now nowruz nowtv np nr nra nrw ntt nu nyc
nz obi observer office okinawa olayan olayangroup ollo om omega one ong onl online ooo open oracle orange
org organic origins osaka otsuka ott ovh pa page panasonic paris pars partners parts party pay pccw pe pet
pf pfizer pg ph pharmacy phd philips phone photo photography photos physio pics pictet pictures pid pin ping
pink pioneer pizza pk pl place play playstation plumbing plus pm pn pnc pohl poker politie porn post pr
praxi press prime pro prod productions prof progressive promo properties property protection pru prudential
ps pt pub pw pwc py qa qpon quebec quest racing radio re read realestate realtor realty recipes red
redumbrella rehab reise reisen reit reliance ren rent rentals repair report republican rest restaurant
review reviews rexroth rich richardli ricoh ril rio rip ro rocks rodeo rogers room rs rsvp ru rugby ruhr run
rw rwe ryukyu sa saarland safe safety sakura sale salon samsclub samsung sandvik sandvikcoromant sanofi sap
sarl sas save saxo sb sbi sbs sc scb schaeffler schmidt scholarships school schule schwarz science scot sd
se search seat secure security seek select sener services seven sew sex sexy sfr sg sh shangrila sharp shell
shia shiksha shoes shop shopping shouji show si silk sina singles site sj sk ski skin sky skype sl sling sm
smart smile sn sncf so soccer social softbank software sohu solar solutions song sony soy spa space sport
spot sr srl ss st stada staples star statebank statefarm stc stcgroup stockholm storage store stream studio
study style su sucks supplies supply support surf surgery suzuki sv swatch swiss sx sy sydney systems sz tab
taipei talk taobao target tatamotors tatar tattoo tax taxi tc tci td tdk team tech technology tel temasek
tennis teva tf tg th thd theater theatre tiaa tickets tienda tips tires tirol tj tjmaxx tjx tk tkmaxx tl tm
tmall tn to today tokyo tools top toray toshiba total tours town toyota toys tr trade trading training
travel travelers travelersinsurance trust trv tt tube tui tunes tushu tv tvs tw tz ua ubank ubs ug uk unicom
university uno uol ups us uy uz va vacations vana vanguard vc ve vegas ventures verisign versicherung vet vg
vi viajes video vig viking villas vin vip virgin visa vision viva vivo vlaanderen vn vodka volvo vote voting
voto voyage vu wales walmart walter wang wanggou watch watches weather weatherchannel webcam weber website
wed wedding weibo weir wf whoswho wien wiki williamhill win windows wine winners wme woodside work works
world wow ws wtc wtf xbox xerox xihuan xin xn--11b4c3d xn--1ck2e1b xn--1qqw23a xn--2scrj9c xn--30rr7y
xn--3bst00m xn--3ds443g xn--3e0b707e xn--3hcrj9c xn--3pxu8k xn--42c2d9a xn--45br5cyl xn--45brj9c xn--45q11c
xn--4dbrk0ce xn--4gbrim xn--54b7fta0cc xn--55qw42g xn--55qx5d xn--5su34j936bgsg xn--5tzm5g xn--6frz82g
xn--6qq986b3xl xn--80adxhks xn--80ao21a xn--80aqecdr1a xn--80asehdb xn--80aswg xn--8y0a063a xn--90a3ac
xn--90ae xn--90ais xn--9dbq2a xn--9et52u xn--9krt00a xn--b4w605ferd xn--bck1b9a5dre4c xn--c1avg xn--c2br7g
xn--cck2b3b xn--cckwcxetd xn--cg4bki xn--clchc0ea0b2g2a9gcd xn--czr694b xn--czrs0t xn--czru2d xn--d1acj3b
xn--d1alf xn--e1a4c xn--eckvdtc9d xn--efvy88h xn--fct429k xn--fhbei xn--fiq228c5hs xn--fiq64b xn--fiqs8s
xn--fiqz9s xn--fjq720a xn--flw351e xn--fpcrj9c3d xn--fzc2c9e2c xn--fzys8d69uvgm xn--g2xx48c xn--gckr3f0f
xn--gecrj9c xn--gk3at1e xn--h2breg3eve xn--h2brj9c xn--h2brj9c8c xn--hxt814e xn--i1b6b1a6a2e xn--imr513n
xn--io0a7i xn--j1aef xn--j1amh xn--j6w193g xn--jlq480n2rg xn--jvr189m xn--kcrx77d1x4a xn--kprw13d
xn--kpry57d xn--kput3i xn--l1acc xn--lgbbat1ad8j xn--mgb9awbf xn--mgba3a3ejt xn--mgba3a4f16a
xn--mgba7c0bbn0a xn--mgbaam7a8h xn--mgbab2bd xn--mgbah1a3hjkrd xn--mgbai9azgqp6j xn--mgbayh7gpa xn--mgbbh1a
xn--mgbbh1a71e xn--mgbc0a9azcg xn--mgbca7dzdo xn--mgbcpq6gpa1a xn--mgberp4a5d4ar xn--mgbgu82a xn--mgbi4ecexp
xn--mgbpl2fh xn--mgbt3dhd xn--mgbtx2b xn--mgbx4cd0ab xn--mix891f xn--mk1bu44c xn--mxtq1m xn--ngbc5azd
xn--ngbe9e0a xn--ngbrx xn--node xn--nqv7f xn--nqv7fs00ema xn--nyqy26a xn--o3cw4h xn--ogbpf8fl xn--otu796d
xn--p1acf xn--p1ai xn--pgbs0dh xn--pssy2u xn--q7ce6a xn--q9jyb4c xn--qcka1pmc xn--qxa6a xn--qxam xn--rhqv96g
xn--rovu88b xn--rvc1e0am3e xn--s9brj9c xn--ses554g xn--t60b56a xn--tckwe xn--tiq49xqyj xn--unup4y
xn--vermgensberater-ctb xn--vermgensberatung-pwb xn--vhquv xn--vuq861b xn--w4r85el8fhu5dnra xn--w4rs40l
xn--wgbh1c xn--wgbl6a xn--xhq521b xn--xkc2al3hye2a xn--xkc2dl3a5ee0h xn--y9a3aq xn--yfro4i67o xn--ygbi2ammx
xn--zfr164b xxx xyz yachts yahoo yamaxun yandex ye yodobashi yoga yokohama you youtube yt yun za zappos zara
zero zip zm zone zuerich zw
"""
"""Domains of the root zone of 16 May 2026."""
TOP_LEVEL: Final = frozenset(f"{_RESERVED} {_DELEGATED}".split())
FILE_ENDINGS: Final = frozenset(_FILE_ENDINGS.split())
"""Domains that are endings of files as well: `report.zip` alone is read as the file."""


_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443, "ftp": 21, "file": 0}
"""Schemes with a host that browsers know, with their default ports."""
_DROPPED: Final = frozenset(("", "http", "https", "ftp"))
"""Schemes that do not tell places apart."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_FORBIDDEN: Final = re.compile(r"[\s\\<>\"`\x00-\x1f\x7f]")
_HOST_PORT: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]{0,5}))?")
_BARE: Final = re.compile(r"[^\s/?#\\@:<>\"'`\[\]]+(?::[0-9]{1,5})?(?:[/?#].*)?")
_ENCODED: Final = re.compile("%[0-9a-fA-F]{2}")
_PRINTABLE: Final = "".join(map(chr, range(33, 127)))
_DOTS: Final = ".\u3002\uff0e\uff61"
_END: Final = r"[^\s<>\"'`|]"
MAX_LINK: Final = 4096
"""Maximum number of characters of a link in a text; the rest is read as more text."""
_HOST: Final = r"[^\s<>\"'`|/\\?\#(){}\[\],;]"
_LINK, _MORE = f"{_END}{{1,{MAX_LINK}}}", f"{_END}{{0,{MAX_LINK}}}"
_FOUND: Final = re.compile(
    rf"""(?ix)
    (?P<link> [a-z](?:[a-z0-9+.-]{{1,30}}:[/\\]{{2,}}|://){_LINK}
        | (?:https?|mailto|javascript|vbscript):{_LINK}
        | (?:ftp|file|wss?):[/\\]{_LINK}
        | data:[a-z]+/[a-z0-9.+-]+[;,]{_MORE} )
    | (?P<mail> [\w.+'&=~#$*^%!{{}}-]{{1,64}}@\w[\w-]*(?:[{_DOTS}]\w[\w-]*)+ )
    | (?<![:\w/\\])[/\\]{{2,}}(?: {_HOST}+[{_DOTS}]{_HOST}+(?:[/?\#\\]{_MORE})? )
    | (?<![\w/\\{_DOTS}@-])(?:(?<!%)|(?![0-9a-f]{{2}}))
        (?: \w[\w-]*(?:[{_DOTS}]\w[\w-]*)+ [{_DOTS}]?(?::[0-9]{{1,5}}(?![0-9.]))? (?:[/?\#\\]{_MORE})? )
    """
)
_MAY_LEAD: Final = re.compile(
    rf"[/\\]{{2}}|\w:[/\\]|\w[{_DOTS}]\w|\w@\w|[&%\\=]|\][(:]|(?:https?|mailto|script|data):", re.IGNORECASE
)
"""Parts of a text without which it has no link, in any variant of it."""
_NEXT: Final = re.compile(r"[,;)\]}](?=[a-z][a-z0-9+.-]{1,30}:[/\\]{2}|www\.)", re.IGNORECASE)
_AFTER: Final = ".,;:!?)]}*_"
_ESCAPED: Final = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,5})\}|x([0-9a-fA-F]{2})|([!-/:-@\[-`{-~])"
    r"|0{0,4}(3a|2f|2e)[ ]?|0?(72|57|56))",  # in CSS, and in octal: the signs of a link
    re.IGNORECASE,
)
_OCTAL: Final = {"72": ":", "57": "/", "56": "."}
_DROPPED_WITHIN: Final = re.compile(r"(?<=[/\\:])[\t\r\n]+(?=[/\\])")
"""Characters that browsers leave out between the slashes of a link."""
_INVISIBLE: Final = re.compile("[\u00ad\u034f\u180e\u200b-\u200d\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_DESTINATION: Final = re.compile(
    r"""(?ix)
    \]\(\s*<?([^)>]*) | ^[ >]{0,8}\[[^\]\n]{1,999}\]:[ \t]*\n?[ \t]*<?(\S+)
    | \b(?:href|src|srcset|action|formaction|data|poster|background|cite|ping|codebase|manifest)
        \s*=\s*(?:"([^"]*)" | '([^']*)' | ([^\s"'>]+))
    """,
    re.MULTILINE,
)
_LEADS_NOWHERE: Final = re.compile(r"cid:|data:image/(?:png|jpeg|gif|webp)[;,]", re.IGNORECASE)


class Unreadable(str):
    """A text that readers resolve to different places, or to none."""

    __slots__ = ()


class ResolvedLink(NamedTuple):
    """A link as browsers resolve it."""

    scheme: str
    """Scheme in small letters; empty if the text has none."""
    user: str
    host: str
    """Host as `canonical_host` returns it; empty in a link without one (`file:///srv`)."""
    port: int | None
    """Port; None for the scheme's default."""
    path: str
    """Path that begins with a slash, or is empty. Dots are resolved, and only what must be is encoded."""
    rest: str
    """Rest of the link from the `?` or `#` on."""

    @property
    def place(self) -> str:
        """Text to compare links by: without `http`, `https` and `ftp`, and without a last slash."""
        scheme = "" if self.scheme in _DROPPED else f"{self.scheme}://"
        user = f"{self.user}@" if self.user else ""
        port = "" if self.port is None else f":{self.port}"
        return scheme + (f"{user}{self.host}{port}{self.path}{self.rest}".removesuffix("/") or "/")


def is_link(text: str) -> bool:
    """Return whether a whole text has the form of a link: a scheme and a host, `//host`, or `a.b`."""
    scheme = _SCHEME.match(text)
    if scheme is not None:
        if scheme[1].lower() in _PORTS or text.startswith(("//", "\\\\", "/\\"), scheme.end()):
            return True
        if not text[scheme.end() :].partition("/")[0].isdecimal():
            return False
    if text.startswith("//"):
        return len(text) > 2 and text[2] not in "/ "
    if not _BARE.fullmatch(text):
        return False
    host = re.split("[:/?#]", text, maxsplit=1)[0]
    has_port = text[len(host) : len(host) + 1] == ":"
    if not host.isascii():
        return has_port or any(dot in host.strip(_DOTS) for dot in _DOTS)
    named = canonical_host(host)
    return named is not None and (has_port or "." in named) and (not is_address(named) or named == host)


def read_link(text: str) -> ResolvedLink | None:
    """Return a link as browsers resolve it; None if readers disagree, or it is no link."""
    text = text.strip(" \t\r\n")
    if _FORBIDDEN.search(text):
        return None
    found = _SCHEME.match(text)
    scheme, rest = ("", text) if found is None else (found[1].lower(), text[found.end() :])
    if found is not None and scheme not in _PORTS and not rest.startswith("//"):
        if not re.split("[/?#]", rest, maxsplit=1)[0].isdecimal():
            return None  # `mailto:` and other schemes without a host
        scheme, rest = "", text  # localhost:8080/a
    if scheme or rest.startswith("//"):
        slashes = len(rest) - len(rest.lstrip("/"))
        if slashes != 2 and not (scheme == "file" and slashes == 3):
            return None
        rest = rest[2:]
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, _, server = authority.rpartition("@")
    parts = _HOST_PORT.fullmatch(server)
    path = _read_path(rest[len(authority) :])
    if parts is None or "@" in user or path is None or (not scheme and parts[2] == ""):
        return None
    host = canonical_host(parts[1]) if parts[1] else ""
    port = int(parts[2]) if parts[2] else None
    if host is None or (not host and (scheme in _DROPPED or user or port)) or (port or 0) > 65535:
        return None
    return ResolvedLink(scheme, user, host, None if port == _PORTS.get(scheme, -1) else port, *path)


def read_place(text: str) -> str:
    """Return the place of a text that has the form of a link; Unreadable if it has no one place."""
    link = read_link(text)
    return Unreadable(text) if link is None else link.place


def _read_path(rest: str) -> tuple[str, str] | None:
    """Return the path of a link without dots, and the rest; None if decoding it shows more dots."""
    path = re.split("[?#]", rest, maxsplit=1)[0]
    after = spell(rest[len(path) :])
    if not path:
        return "", after
    names: list[str] = []
    whole = spell(path).split("/")[1:]
    for name in whole:
        if name == "..":
            del names[-1:]
        elif name != ".":
            names.append(name)
    if whole[-1] in (".", ".."):
        names.append("")
    path = "/" + "/".join(names)
    return None if hides_dots(path) else (path, after)


def hides_dots(path: str) -> bool:
    """Return whether a path has `.` or `..` as a name, or would have once a reader decodes it."""
    plain = path
    for _ in range(3):
        plain = unquote(plain, errors="replace")
    names = plain.replace("\\", "/").split("/")
    return any(name.partition(";")[0].strip(" ") in (".", "..") for name in names)


def spell(text: str) -> str:
    """Return a part of a link with only those characters encoded that must be."""
    if "%" in text:
        text = _ENCODED.sub(_decode_plain, text)
    return text if text.isascii() else quote(text, safe=_PRINTABLE, errors="surrogatepass")


def _decode_plain(found: re.Match[str]) -> str:
    letter = chr(int(found[0][1:], 16))
    return letter if letter.isascii() and (letter.isalnum() or letter in "-._~") else found[0].upper()


# ------------------------------------------------------------------ in a text


def find_places(text: str) -> Iterator[str]:
    """Yield the place of each link and mail address in a text; Unreadable for one that has no one place."""
    if text.isascii() and _MAY_LEAD.search(text) is None:
        return
    for variant in _variants(text):
        for _, _, places in scan(variant):
            yield from places
        for found in _DESTINATION.finditer(variant):
            yield from _of_destination(next(filter(None, found.groups()), ""))


def scan(text: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield the beginning and end of each link and address in a text, with the places that it means."""
    at = 0
    while (found := _FOUND.search(text, at)) is not None:
        written = found[0]
        joined = _NEXT.search(written)
        written = (written if joined is None else written[: joined.start()]).rstrip(_AFTER) or written
        at = max(found.start() + len(written), at + 1)
        places = _places_of(found, written)
        if places:
            yield found.start(), at, places


def _places_of(found: re.Match[str], written: str) -> tuple[str, ...]:
    if found["mail"] is not None:
        return (canonical_address(written) or Unreadable(written),)
    if found["link"] is not None:
        return _of_scheme(written)
    bare = written.lstrip("/\\")
    host = re.split(r"[/:?#\\]", bare, maxsplit=1)[0]
    tail = bare[len(host) :]
    return (read_place(written),) if _is_resolved(host, tail or written[: -len(bare)]) else ()


def _of_scheme(written: str) -> tuple[str, ...]:
    scheme = written.partition(":")[0].lower()
    if scheme == "mailto":
        return find_mailboxes(written) or (Unreadable(written),)
    if _LEADS_NOWHERE.match(written):
        return ()
    return (read_place(written),)


def _is_resolved(host: str, beside: str) -> bool:
    """Return whether clients make a link of a host without a scheme, with the slashes or path beside it."""
    last = re.split(f"[{_DOTS}]", host.rstrip(_DOTS))[-1].lower()
    if not last.isascii():
        last = (canonical_host(f"x.{last}") or "")[2:]
    if last in TOP_LEVEL:
        return bool(beside) or host.count(".") > 1 or last not in FILE_ENDINGS
    is_ip = last.isdecimal() and canonical_host(host) == host
    return is_ip and bool(beside) and not re.fullmatch("/[0-9]{1,2}", beside)


def _of_destination(written: str) -> tuple[str, ...]:
    """Return the places of a destination of Markdown or HTML that `scan` alone would not find."""
    text = re.sub(r"[\t\r\n]", "", html.unescape(written)).strip("".join(map(chr, range(33))))
    if re.match(r"[/\\]{2}", text) or (_SCHEME.match(text) and not is_link(text)):
        return _of_scheme(text)
    return tuple(place for _, _, places in scan(text) for place in places)


def _variants(text: str) -> Iterator[str]:
    """Yield the text, and the texts that clients get by decoding it."""
    yield text
    seen = {text}
    plain = text if text.isascii() else unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    escaped = _ESCAPED.sub(_unescape, plain) if "\\" in plain else plain
    decoded = html.unescape(escaped)
    for other in (plain, escaped, decoded, html.unescape(decoded), _DROPPED_WITHIN.sub("", decoded)):
        if other not in seen:
            seen.add(other)
            yield other
        if _ENCODED.search(other) and (bare := unquote(_without_links(other))) not in seen:
            seen.add(bare)
            yield bare


def _unescape(found: re.Match[str]) -> str:
    if found[6]:
        return _OCTAL[found[6]]
    return found[4] or chr(int(found[1] or found[2] or found[3] or found[5], 16))


def _without_links(text: str) -> str:
    """Return the text without its links: an encoded part of a link belongs to its own place."""
    kept, at = [], 0
    for start, end, _ in scan(text):
        kept.append(text[at:start])
        at = end
    return " ".join((*kept, text[at:]))
