//! Names that every event repeats, made once.

use std::sync::Arc;

use tidemill_model::{
    Context, Entity, EntityId, EntityType, EventType, JobId, KnownType, RequestId, WorkerId,
};

/// The component that writes an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    ProducerApi,
    Dispatcher,
    Worker,
    DlqProcessor,
    HealthCheck,
}

impl Origin {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ProducerApi => "producer-api",
            Self::Dispatcher => "dispatcher",
            Self::Worker => "sqs-worker",
            Self::DlqProcessor => "dlq-processor",
            Self::HealthCheck => "health-check",
        }
    }
}

/// Where this engine runs, with the shared names its events carry.
#[derive(Debug, Clone)]
pub struct Site {
    environment: Arc<str>,
    origins: [Arc<str>; 5],
    types: Vec<EventType>,
    task: EntityType,
    job: EntityType,
}

impl Site {
    /// `environment` is the stage, such as `prod`.
    pub fn new(environment: &str) -> Self {
        let origin = |origin: Origin| Arc::from(origin.as_str());
        Self {
            environment: Arc::from(environment),
            origins: [
                origin(Origin::ProducerApi),
                origin(Origin::Dispatcher),
                origin(Origin::Worker),
                origin(Origin::DlqProcessor),
                origin(Origin::HealthCheck),
            ],
            types: KnownType::ALL.iter().map(|known| known.event_type()).collect(),
            task: EntityType::trusted("TASK"),
            job: EntityType::trusted("JOB"),
        }
    }

    pub fn environment(&self) -> Arc<str> {
        Arc::clone(&self.environment)
    }

    pub fn context(&self, origin: Origin, worker: Option<&WorkerId>) -> Context {
        Context {
            environment: Arc::clone(&self.environment),
            origin: Arc::clone(&self.origins[origin as usize]),
            worker_id: worker.cloned(),
        }
    }

    pub fn event_type(&self, known: KnownType) -> EventType {
        self.types[known as usize].clone()
    }

    pub fn task(&self, request: &RequestId) -> Entity {
        Entity { kind: self.task.clone(), id: request.entity_id() }
    }

    pub fn job(&self, job: JobId) -> Entity {
        Entity { kind: self.job.clone(), id: EntityId::trusted(&job.to_string()) }
    }
}

impl Default for Site {
    fn default() -> Self {
        Self::new("dev")
    }
}
