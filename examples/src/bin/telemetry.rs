//! A server's ledger by way of OpenTelemetry: its figures through the `metrics` facade, limits that were met through
//! `tracing`. The exporters here keep everything they receive; a server uses those of `opentelemetry-otlp` instead.

use ledgerline::export::{events::LimitEvents, metrics::Metrics};
use ledgerline::{Ledger, Limit};
use metrics_exporter_opentelemetry::Recorder;
use opentelemetry::logs::AnyValue;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::{InMemoryLogExporter, SdkLoggerProvider};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader};
use std::error::Error;
use tracing_subscriber::prelude::*;

/// Returns the exported gauges of one name, with their groups.
fn gauges(exported: &[ResourceMetrics], name: &str) -> Vec<(String, f64)> {
    let scopes = exported.last().into_iter().flat_map(|all| all.scope_metrics());
    let metrics = scopes.flat_map(|scope| scope.metrics()).filter(|metric| metric.name() == name);
    let mut found = Vec::new();
    for metric in metrics {
        if let AggregatedMetrics::F64(MetricData::Gauge(gauge)) = metric.data() {
            for point in gauge.data_points() {
                let group = point.attributes().find(|label| label.key.as_str() == "group");
                let group = group.map_or(String::new(), |label| label.value.to_string());
                found.push((group, point.value()));
            }
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

fn main() -> Result<(), Box<dyn Error>> {
    let ledger = Ledger::new()?.into_static();
    let (figures, records) = (InMemoryMetricExporter::default(), InMemoryLogExporter::default());

    // Once, at the start: all users of the facades are exported, this library like any other.
    let reader = PeriodicReader::builder(figures.clone()).build();
    let recorder =
        Recorder::builder("server").with_meter_provider(|meter| meter.with_reader(reader));
    let (meter, _) = recorder.install()?;
    let logger = SdkLoggerProvider::builder().with_simple_exporter(records.clone()).build();
    tracing_subscriber::registry().with(OpenTelemetryTracingBridge::new(&logger)).init();

    let mut metrics = Metrics::new(ledger).depth(2).groups(50);
    let mut events = LimitEvents::new(ledger.root());

    let tenant = ledger.root().create("acme")?;
    tenant.set_max(Limit::units(1 << 20))?;
    let query = tenant.create("q1")?;
    let held = query.try_charge(700_000)?;
    for _ in 0..1000 {
        query.try_charge(700_000).unwrap_err();
    }

    // In a thread of the server's own, every second or ten:
    metrics.update();
    events.emit();

    meter.force_flush()?;
    for (group, bytes) in gauges(&figures.get_finished_metrics()?, "ledgerline_current_bytes") {
        println!("ledgerline_current_bytes{{group={group}}} {bytes}");
        assert_eq!(bytes, 700_000.0);
    }
    let logs = records.get_emitted_logs()?;
    for log in &logs {
        let body = match log.record.body() {
            Some(AnyValue::String(text)) => text.as_str(),
            _ => "",
        };
        let fields: Vec<String> =
            log.record.attributes_iter().map(|(key, value)| format!("{key}={value:?}")).collect();
        println!("{}: {body}: {}", log.record.severity_text().unwrap_or(""), fields.join(", "));
        assert!(["charges met the group's max", "limits were set"].contains(&body), "{body}");
    }
    assert_eq!(logs.len(), 2, "one event for a thousand refusals, and one for the limit");
    drop(held);
    println!("ok");
    Ok(())
}
