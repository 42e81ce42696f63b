//! A controller and its image, asked through whole frames, as a client would.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_buffer::Buf;
use ringmain_metadata::{BrokerConfig, Controller, ControllerConfig, NewTopic, Record};
use ringmain_session::{ReplySlot, Request};
use ringmain_types::*;
use ringmain_wire::{ApiSpec, Field, METADATA, decode_reply, encode_request, request_header};

use super::control::{self, Reply};
use super::local::{self, Local, LocalContext};

pub(super) const NOW: Now = Now { mono: Instant(0), wall: WallMs(0) };

pub(super) struct Fixture {
    pub controller: Controller,
    pub config: crate::Config,
    pub broker_config: BrokerConfig,
}

impl Fixture {
    pub fn new() -> Fixture {
        let config = crate::Config {
            broker: BrokerId(1),
            shard: ShardId(0),
            shards: 1,
            dir: DirId(0),
            limits: Limits::tiny(),
            seed: 1,
            journal_generation: 0,
            journal_flush_covers: true,
            cluster_id: "cluster".into(),
            advertised: ("here".into(), 9092),
            journal_exists: false,
            dir_path: "/d".into(),
            properties: BTreeMap::new(),
        };
        let controller = Controller::new(ControllerConfig {
            broker: config.broker,
            seed: config.seed,
            limits: config.limits.clone(),
            properties: Arc::default(),
        });
        let mut fixture = Fixture { controller, config, broker_config: BrokerConfig::default() };
        let records = fixture.controller.start("cluster", "here", 9092);
        fixture.replay(&records);
        fixture
    }

    pub fn properties(&mut self, name: &str, value: &str) {
        let given = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        self.broker_config = BrokerConfig::parse(&given).unwrap();
    }

    pub fn replay(&mut self, records: &[Record]) {
        for record in records {
            let offset = self.controller.image().next;
            self.controller.replay(offset, &Record::decode(&record.encode()).unwrap()).unwrap();
        }
    }

    pub fn create(&mut self, name: &str, partitions: i32) -> TopicId {
        let new = NewTopic { name: name.into(), partitions, replication_factor: 1, ..Default::default() };
        let decision = self.controller.create_topics(NOW, &[new], false);
        self.replay(&decision.records);
        decision.results[0].as_ref().unwrap().id
    }

    pub fn ask<'a, T: Field<'a>>(&self, spec: &ApiSpec, version: i16, asked: &T) -> Vec<u8> {
        self.ask_with(spec, version, asked, None)
    }

    pub fn ask_with<'a, T: Field<'a>>(
        &self,
        spec: &ApiSpec,
        version: i16,
        asked: &T,
        created: Option<&[(String, ErrorCode)]>,
    ) -> Vec<u8> {
        match self.answer(request(spec, version, asked), created) {
            Local::Reply(answer) => answer.parts.concat(),
            Local::Create(names) => panic!("wants {names:?}"),
            Local::Close(why) => panic!("closes: {why}"),
        }
    }

    /// A body as it is, behind a header without a client id.
    pub fn ask_raw(&self, api: i16, version: i16, body: &[u8]) -> Vec<u8> {
        let mut request = request(&METADATA, 1, &ringmain_wire::MetadataRequest::default());
        (request.api, request.version) = (api, version);
        (request.frame, request.body) = (Buf::copy_of(body), 0);
        match self.answer(request, None) {
            Local::Reply(answer) => answer.parts.concat(),
            _ => panic!("no reply"),
        }
    }

    /// The topics that a Metadata request wants made.
    pub fn wanted<'a, T: Field<'a>>(
        &self,
        version: i16,
        asked: &T,
        created: Option<&[(String, ErrorCode)]>,
    ) -> Vec<String> {
        match self.answer(request(&METADATA, version, asked), created) {
            Local::Create(names) => names,
            _ => panic!("wants none"),
        }
    }

    pub fn answer(&self, request: Request, created: Option<&[(String, ErrorCode)]>) -> Local {
        let image = self.controller.image();
        let context = LocalContext { image: &image, config: &self.config, broker_config: &self.broker_config };
        local::answer(&context, &request, created)
    }

    /// Decides, replays, and gives the reply.
    pub fn change<'a, T: Field<'a>>(&mut self, spec: &ApiSpec, version: i16, asked: &T) -> Vec<u8> {
        let decided = control::decide(&mut self.controller, NOW, &request(spec, version, asked));
        self.replay(&decided.records);
        match decided.reply {
            Reply::Answer(answer) => answer.parts.concat(),
            Reply::Close(why) => panic!("closes: {why}"),
        }
    }
}

/// What a session makes of an encoded request.
pub(super) fn request<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, asked: &T) -> Request {
    let bytes = encode_request(spec, version, 7, Some("test"), asked).concat();
    let frame = Buf::copy_of(&bytes[4..]);
    let (header, body) = request_header(&frame).unwrap();
    assert_eq!((header.api, header.version, header.correlation), (spec.key, version, 7));
    Request {
        connection: ConnectionId { shard: ShardId(0), slot: 0, generation: 0 },
        slot: ReplySlot(0),
        api: spec.key,
        version,
        correlation: 7,
        client_id: Buf::default(),
        principal: PrincipalId(0),
        body: body as u32,
        frame: frame.clone(),
        received: Instant(0),
        counted: None,
    }
}

/// A whole reply frame, decoded; its length prefix and correlation id are checked.
pub(super) fn call<'a, T: Field<'a>>(spec: &ApiSpec, version: i16, reply: &'a [u8]) -> T {
    let (length, frame) = reply.split_at(4);
    assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, frame.len());
    let (correlation, decoded) = decode_reply(spec, version, frame).unwrap();
    assert_eq!(correlation, 7);
    decoded
}
