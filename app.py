"""What `streamlit run` runs: the frame, then the page that the address asks for."""

import streamlit as st

from pages import _frame, _start

_frame.show()
st.navigation(_start.pages(), position="top").run()
