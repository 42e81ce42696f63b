//! InitProducerId: ids for idempotent producers.

use ringmain_metadata::{Controller, Record};
use ringmain_session::Request;
use ringmain_types::{ErrorCode, ProducerEpoch, ProducerId};
use ringmain_wire::{INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse};

use super::control::Outcome;
use super::{answered, body};

pub(super) fn decide(controller: &mut Controller, request: &Request) -> Outcome {
    let asked: InitProducerIdRequest<'_> = body(&INIT_PRODUCER_ID, request)?;
    let (records, reply) = match asked.transactional_id {
        None => allocate(controller),
        Some("") => (Vec::new(), refuse(ErrorCode::InvalidRequest)),
        // FindCoordinator is not advertised, so clients stop there and never come this far; to one that does, this code is final.
        // A retriable one would make it try for ever, an authorization error would send its owner to look for ACLs.
        Some(_) => (Vec::new(), refuse(ErrorCode::UnsupportedVersion)),
    };
    Ok((records, answered(&INIT_PRODUCER_ID, request, &reply, [reply.error_code])))
}

/// A new id at epoch 0, whatever id and epoch the producer had: as in Kafka, only a transactional producer keeps its own.
fn allocate(controller: &mut Controller) -> (Vec<Record>, InitProducerIdResponse) {
    match controller.allocate_producer_id() {
        Ok((records, producer_id)) => {
            let producer_epoch = ProducerEpoch(0);
            (records, InitProducerIdResponse { producer_id, producer_epoch, ..Default::default() })
        }
        Err(refusal) => (Vec::new(), refuse(refusal.code)),
    }
}

fn refuse(error_code: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse {
        error_code,
        producer_id: ProducerId(-1),
        producer_epoch: ProducerEpoch(-1),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fixture::{Fixture, call};

    #[test]
    fn ids_are_new_in_every_version_and_a_record_begins_a_block() {
        let mut fixture = Fixture::new();
        let before = fixture.controller.image().next;
        for nth in 0..1500 {
            let version = (nth % 6) as i16;
            let reply = fixture.change(&INIT_PRODUCER_ID, version, &InitProducerIdRequest::default());
            let got: InitProducerIdResponse = call(&INIT_PRODUCER_ID, version, &reply);
            assert_eq!((got.error_code, got.producer_id, got.producer_epoch.0), (ErrorCode::None, ProducerId(nth), 0));
        }
        assert_eq!(fixture.controller.image().next.0 - before.0, 2);
    }

    #[test]
    fn transactions_are_refused_for_good() {
        let mut fixture = Fixture::new();
        for (id, code) in [("t", ErrorCode::UnsupportedVersion), ("", ErrorCode::InvalidRequest)] {
            let asked = InitProducerIdRequest { transactional_id: Some(id), ..Default::default() };
            let reply = fixture.change(&INIT_PRODUCER_ID, 5, &asked);
            let got: InitProducerIdResponse = call(&INIT_PRODUCER_ID, 5, &reply);
            assert_eq!((got.error_code, got.producer_id), (code, ProducerId(-1)));
        }
    }
}
