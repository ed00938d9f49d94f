//! The export: dead letters as lines of the archive's format, streamed as fast as the client reads them.
//!
//! A line is made when the client takes it, so a slow client costs the memory of one line and one page of a list, and one
//! that went away costs nothing. Should the store fail in the middle, the connection is broken off: a whole answer is
//! complete.

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use postrider_store::StoreError;

use super::super::Shared;
use super::super::error::ApiError;
use super::super::query::Query;
use super::filter;
use crate::letters::gather::Gatherer;
use crate::letters::line::MEDIA_TYPE;

/// `GET /dead-letters/export`
pub(in super::super) async fn get(State(app): State<Shared>, mut query: Query) -> Result<Response, ApiError> {
    let filter = filter::from_query(&mut query);
    query.finish()?;
    let upper = app.store.last_dead_letter().await?;
    let gatherer = Gatherer::new(app.store.clone(), filter, upper);
    let lines = stream::unfold(Some(gatherer), async |gatherer| {
        let mut gatherer = gatherer?;
        match line(&mut gatherer).await {
            Ok(line) => line.map(|line| (Ok(line), Some(gatherer))),
            Err(error) => {
                tracing::error!(%error, "an export broke off");
                Some((Err(error), None))
            }
        }
    });
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], Body::from_stream(lines)).into_response())
}

async fn line(gatherer: &mut Gatherer) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(gathered) = gatherer.next().await? else {
        return Ok(None);
    };
    let mut text = Vec::new();
    let written = gathered.line.write(&mut text);
    written
        .map(|()| Some(text))
        .map_err(|error| StoreError::Corrupt(error.to_string()))
}
