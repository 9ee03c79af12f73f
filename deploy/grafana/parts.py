"""What all dashboards are made of: queries, panels of three kinds, the variables that name what is shown.

Every query names the job it reads and the namespace, which is the fleet: one at a time is shown. They read
what processes serve; recording rules are of no use here, so the dashboards work without them.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

__all__ = [
    "FLEET",
    "HALF",
    "NOTIFY",
    "PATIENCE_S",
    "PROCESS",
    "SOURCE",
    "THIRD",
    "Panels",
    "Query",
    "bars",
    "empty_dashboard",
    "line",
    "number",
    "quantile",
    "rate",
    "rows_of_accounts",
    "ruled_share",
    "share",
    "veto_rate",
]

_ONE: Final = 'namespace="$namespace"'
FLEET: Final = f'job="toolgate-exporter", {_ONE}'
"""Selects what the exporter counted of the whole fleet."""
NOTIFY: Final = f'job="toolgate-notify", {_ONE}'
"""Selects what `toolgate notify` tells of itself."""
PROCESS: Final = f'job=~"toolgate-.*", {_ONE}'
"""Selects what processes count of themselves on their own ports."""
SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
RULES_CHANGED: Final = (
    f"max by (scheduler, event) (toolgate_config_change_timestamp_seconds{{{FLEET}}}) > time() - 60"
)
"""A series for a minute after rules of a scheduler changed: a mark in every panel."""
PATIENCE_S: Final = 0.5
"""The default of orchestrators: a line in panels of latency."""
THIRD, HALF = 8, 12  # of 24 columns

Limit = tuple[float, str]
"""From this value on, this colour."""
Panels = Sequence[Builder[models.Panel]]
_Panel = TypeVar("_Panel", timeseries.Panel, stat.Panel, bargauge.Panel, table.Panel)


class Query(NamedTuple):
    """PromQL, and the name of each series that it gives."""

    expr: str
    legend: str
    exemplars: bool = False


def rate(metric: str, by: str = "", only: str = "", window: str = "5m") -> str:
    """How often a second, summed by these labels; `only` selects more than the fleet."""
    selected = f"{FLEET}, {only}" if only else FLEET
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} (rate({metric}{{{selected}}}[{window}]))"


def share(part: str, whole: str) -> str:
    """A part of a whole, each by the same labels: 0 where it was never counted, nothing without traffic."""
    return f"({part} or 0 * {whole}) / ({whole} > 0)"


def veto_rate(by: str = "") -> str:
    """Denied decisions / decisions, of the last five minutes."""
    denied = rate("toolgate_decisions_total", by, 'outcome="deny"')
    return share(denied, rate("toolgate_decisions_total", by))


def ruled_share(metric: str, only: str, of: str = "", window: str = "5m") -> str:
    """Of a scheduler: how often this was counted / decisions about which it was asked; `of` selects it."""
    asked = rate("toolgate_asked_decisions_total", "scheduler", of, window)
    chosen = ", ".join(filter(None, (of, only)))
    return share(rate(metric, "scheduler", chosen, window), asked)


def quantile(of: float, metric: str, by: str = "", only: str = "", window: str = "5m") -> str:
    """A quantile of a histogram, by these labels; of what did not happen in the window there is none."""
    each = f"{by}, le" if by else "le"
    return f"histogram_quantile({of}, {rate(f'{metric}_bucket', each, only, window)}) >= 0"


def line(
    title: str,
    description: str,
    queries: Sequence[Query],
    unit: str,
    *,
    span: int = THIRD,
    limits: Sequence[Limit] = (),
    stacked: bool = False,
    most: float | None = None,
) -> timeseries.Panel:
    """Something over time; `limits` are drawn as dashed lines, `most` is the top of the axis."""
    panel = (
        _panel(timeseries.Panel(), title, description, queries, unit, limits)
        .span(span)
        .height(8)
        .min(0)
        .line_width(1.5)
        .fill_opacity(30 if stacked else 8)
        .show_points(common_models.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(common_models.LegendDisplayMode.TABLE)
            .placement(common_models.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    if limits:
        mode = common_models.GraphTresholdsStyleMode.DASHED
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(mode))
    return panel if most is None else panel.axis_soft_max(most)


def number(
    title: str, description: str, query: Query, unit: str, *, span: int = 4, limits: Sequence[Limit] = ()
) -> stat.Panel:
    """One figure, as it is now."""
    return (
        _panel(stat.Panel(), title, description, [query], unit, limits)
        .span(span)
        .height(4)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(common_models.BigValueGraphMode.AREA)
        .color_mode(common_models.BigValueColorMode.VALUE if limits else common_models.BigValueColorMode.NONE)
    )


def bars(
    title: str, description: str, query: Query, unit: str, *, span: int = HALF, limits: Sequence[Limit]
) -> bargauge.Panel:
    """How full several things are now, 1 being full."""
    return (
        _panel(bargauge.Panel(), title, description, [query], unit, limits)
        .span(span)
        .height(8)
        .min(0)
        .max(1)
        .orientation(common_models.VizOrientation.HORIZONTAL)
        .display_mode(common_models.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def rows_of_accounts(
    title: str, description: str, columns: Sequence[Query], unit: str, labels: Sequence[str]
) -> table.Panel:
    """A table: a row for each set of labels, a column for each query, named by its legend."""
    panel = _panel(table.Panel(), title, description, (), unit, ()).span(24).height(9)
    names: dict[str, str] = {}
    for place, query in enumerate(columns):
        letter = chr(ord("A") + place)
        names[f"Value #{letter}"] = query.legend
        panel.with_target(_target(query, letter).instant().format(PromQueryFormat.TABLE))
    order = {name: place for place, name in enumerate([*labels, *names])}
    panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    return panel.with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names},
        )
    )


def empty_dashboard(uid: str, title: str, description: str) -> dashboard.Dashboard:
    """A dashboard with the variables `datasource` and `namespace`, and links to the others."""
    links = dashboard.DashboardLink("Toolgate").type(models.DashboardLinkType.DASHBOARDS)
    return (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(["toolgate"])
        .link(links.tags(["toolgate"]).as_dropdown(False).keep_time(True).include_vars(True))
        .editable()
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .annotation(
            dashboard.AnnotationQuery()
            .name("Rules that were changed")
            .datasource(SOURCE)
            .enable(True)
            .icon_color("orange")
            .expr(RULES_CHANGED)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("Datasource").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("namespace")
            .label("Fleet")
            .datasource(SOURCE)
            .query('label_values(toolgate_exporter_leads{job="toolgate-exporter"}, namespace)')
            .refresh(models.VariableRefresh.ON_DASHBOARD_LOAD)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
        )
    )


def _panel(
    panel: _Panel,
    title: str,
    description: str,
    queries: Sequence[Query],
    unit: str,
    limits: Sequence[Limit],
) -> _Panel:
    steps = [models.Threshold(None, "green"), *(models.Threshold(*limit) for limit in limits)]
    panel.title(title).description(description).datasource(SOURCE).unit(unit)
    panel.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    for place, query in enumerate(queries):
        panel.with_target(_target(query, chr(ord("A") + place)))
    return panel


def _target(query: Query, letter: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(letter)
    return target.datasource(SOURCE).exemplar(True) if query.exemplars else target.datasource(SOURCE)
